"""Are the approval keys, and the embedded server's data, where they may be?"""

from nacl.bindings import crypto_core_ed25519_is_valid_point

from tallystick.jobs.checks.facts import Facts, known
from tallystick.jobs.checks.finding import Answer, Check, ok, refuse, warn

_OTHERS = 0o077
_FLEETING = {"tmpfs", "ramfs", "overlay"}


def _signing_key(facts: Facts) -> Answer:
    keys = known(facts.keys)
    if keys.mode is None:
        return ok("no private key on this machine")
    if keys.private_problem:
        return refuse(keys.private_problem, f"Put the right key back into {keys.path}/approval.key")
    if keys.mode & _OTHERS:
        return refuse(
            f"{keys.path}/approval.key has mode {keys.mode:04o}",
            f"chmod 600 '{keys.path}/approval.key', and make a new key if others could read it",
        )
    if keys.folder_mode & 0o022:
        return refuse(
            f"others may replace files in {keys.path} (mode {keys.folder_mode:04o})",
            f"chmod 700 '{keys.path}'",
        )
    return ok(f"mode {keys.mode:04o}")


def _trusted(facts: Facts) -> Answer:
    keys = known(facts.keys)
    file = f"{keys.path}/trusted.json"
    write = f'Write {{"KEY_ID": "PUBLIC_KEY_IN_HEX"}} of every approver into {file}'
    if keys.trusted_problem:
        return refuse(keys.trusted_problem, write)
    if keys.trusted is None:
        if keys.chosen:
            return refuse(f"there is no {file}", write)
        return ok("none yet: the first command that needs a key makes one")
    if not keys.trusted:
        return refuse(f"{file} trusts no key", write)
    if bad := [key_id for key_id, public in keys.trusted.items() if not _sound(public)]:
        return refuse(
            f"not a sound Ed25519 public key: {', '.join(bad)}",
            f"Take {bad[0]} out of {file}, and find out who put it there",
        )
    if keys.public and keys.public not in keys.trusted.values():
        return refuse(
            "the private key on this machine is not trusted by its own trusted.json",
            f"Add {keys.public} to {file} here and at every worker, or remove approval.key",
        )
    return ok(f"{len(keys.trusted)} trusted")


def _sound(public: str) -> bool:
    """Whether it is the canonical encoding of a point of the large prime order."""
    try:
        data = bytes.fromhex(public)
    except ValueError:
        return False
    return len(public) == 64 and bool(crypto_core_ed25519_is_valid_point(data))


def _separation(facts: Facts) -> Answer:
    keys = known(facts.keys)
    if keys.mode is not None and keys.trusted is not None:
        return warn(
            f"{keys.path} serves an approver and a worker",
            "Give workers a TALLYSTICK_KEY_DIR that holds trusted.json only, under another user",
        )
    return ok("approver and worker have folders of their own")


def _data_dir(facts: Facts) -> Answer:
    if not known(facts.endpoint).embedded:
        return ok("not the embedded server")
    if facts.filesystem in _FLEETING:
        return warn(
            f"the embedded server's data lies on {facts.filesystem}",
            "TALLYSTICK_DATA_DIR=/a/folder/on/a/disk (in a container: on a volume)",
        )
    return ok(f"the embedded server's data lies on {facts.filesystem or 'a disk'}")


CHECKS = (
    Check(
        "signing-key-file",
        "Whoever reads the private key can approve anything.",
        _signing_key,
        local=True,
    ),
    Check(
        "trusted-keys",
        "Workers believe an approval by these keys alone; under a small-order key anyone signs.",
        _trusted,
        local=True,
    ),
    Check(
        "key-separation",
        "A worker that can read the private key can approve what it runs.",
        _separation,
        local=True,
    ),
    Check(
        "data-dir",
        "On tmpfs or a container's own layer, nothing outlives the machine or the container.",
        _data_dir,
    ),
)
