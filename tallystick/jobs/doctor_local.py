"""What the doctor finds on this machine: key files, the file system, the installed RQ."""

import base64
import stat
from importlib import metadata
from pathlib import Path

from tallystick.approvals import Signer, load_keyring, load_signer
from tallystick.approvals.keys import PRIVATE, TRUSTED
from tallystick.core.errors import SettingsError
from tallystick.jobs.checks.facts import Denied, KeyFolder

_MOUNTS = Path("/proc/self/mountinfo")


def key_folder(path: Path, *, chosen: bool) -> KeyFolder | Denied:
    """What is in the folder of the approval keys."""
    try:
        signer, private_problem = _signer(path)
        trusted, trusted_problem = _trusted(path)
        mode = _mode(path / PRIVATE)
        return KeyFolder(
            path=str(path),
            chosen=chosen,
            mode=mode,
            folder_mode=0o700 if mode is None else _mode(path) or 0,
            public=signer.public if signer else "",
            private_problem=private_problem,
            trusted=trusted,
            trusted_problem=trusted_problem,
        )
    except OSError as error:
        return Denied(f"read {error.filename or path}", str(error.strerror))


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _signer(path: Path) -> tuple[Signer | None, str]:
    try:
        return load_signer(path), ""
    except SettingsError as error:
        return None, str(error.facts["problem"])


def _trusted(path: Path) -> tuple[dict[str, str] | None, str]:
    try:
        found = dict(load_keyring(path).trusted)
    except SettingsError as error:
        return None, str(error.facts["problem"])
    return (found if (path / TRUSTED).exists() else None), ""


def private_spellings(path: Path) -> tuple[bytes, ...]:
    """How the private key of this folder would look if somebody had stored it; none without one."""
    signer, _ = _signer(path)
    if signer is None:
        return ()
    raw = bytes(signer.key)
    hexed = raw.hex()
    return raw, hexed.encode(), hexed.upper().encode(), base64.b64encode(raw).rstrip(b"=")


def filesystem(path: Path) -> str:
    """The kind of file system that holds this path; empty where the kernel does not tell."""
    try:
        mounts = _MOUNTS.read_text().splitlines()
    except OSError:
        return ""
    found, longest = "", -1
    place = path.resolve()
    for line in mounts:
        before, _, after = line.partition(" - ")
        mount = Path(before.split()[4].replace("\\040", " "))
        if place.is_relative_to(mount) and len(mount.parts) >= longest:
            found, longest = after.split()[0], len(mount.parts)
    return found


def rq_version() -> str:
    """The installed RQ; empty if there is none."""
    try:
        return metadata.version("rq")
    except metadata.PackageNotFoundError:
        return ""
