"""Looks at a file: what it is, its digest and its size, never through a symbolic link."""

import hashlib
import os
import stat

from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.core.errors import InvalidInput, TallystickError


class FileUnreadable(TallystickError):
    """The file {path} could not be read ({problem}), which proves neither that it is as it should
    be nor that it is not. Check the path and the permissions of the worker, then look again."""


def file_state(path: str | os.PathLike[str]) -> dict[str, Json] | None:
    """What stands at `path`, or None if nothing does: absence is an answer, not an error.

    A regular file is `{"kind": "file", "sha256": hex, "size": bytes, "mode": "0644"}`, read in
    pieces, so its size does not matter. Anything else is named and never opened:
    `{"kind": "symlink", "target": text}`, or the kind `directory`, `fifo`, `socket` or `device`
    alone. Links in the folders *above* the file are followed as usual.

    Raises `FileUnreadable` if the system refuses, or if the file changes while it is read;
    `InvalidInput` for a path that cannot exist, or a link's target that is not Unicode.
    """
    place = os.fspath(path)
    shown = repr(place)
    try:
        return _state(place, shown)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FileUnreadable(path=shown, problem=error.strerror or str(error)) from None
    except ValueError:
        raise InvalidInput(
            field="path", problem=f"{shown} cannot exist", remedy="Pass a path without NUL."
        ) from None


def _state(path: str, shown: str) -> dict[str, Json] | None:
    mode = os.lstat(path).st_mode
    if stat.S_ISREG(mode):
        return _digest(path, shown)
    if stat.S_ISLNK(mode):
        return {"kind": "symlink", "target": canonical.text(os.readlink(path), field="target")}
    if stat.S_ISDIR(mode):
        return {"kind": "directory"}
    if stat.S_ISFIFO(mode):
        return {"kind": "fifo"}
    return {"kind": "socket" if stat.S_ISSOCK(mode) else "device"}


def _digest(path: str, shown: str) -> dict[str, Json]:
    with open(path, "rb", buffering=0, opener=_open_itself) as file:
        before = os.fstat(file.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise FileUnreadable(path=shown, problem="it was replaced while it was being read")
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        after = os.fstat(file.fileno())
        size = file.tell()
    if size != after.st_size or before.st_mtime_ns != after.st_mtime_ns:
        raise FileUnreadable(path=shown, problem="it changed while it was being read")
    return {
        "kind": "file",
        "sha256": sha256,
        "size": size,
        "mode": f"{stat.S_IMODE(after.st_mode):04o}",
    }


def _open_itself(path: str, flags: int) -> int:
    # After lstat another process may swap the file for a link or a pipe: these flags neither
    # follow the one nor wait on the other.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
