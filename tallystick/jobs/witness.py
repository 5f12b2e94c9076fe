"""The witness: how far history went, as this host saw it, kept outside Redis.

Redis counts every move. If it ever counts fewer than were seen, or the last line that was seen is
not there, its history was rewound (an old AOF was restored, a lagging replica promoted).
"""

import contextlib
import fcntl
import json
import logging
import os
import re
import time
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

log = logging.getLogger("tallystick.witness")

_WIDTH = 160
"""Bytes of the file: always the same, so that one write replaces all of it."""

_TRIES = 100
_PAUSE_SECONDS = 0.001

_IDENTITY = re.compile(r"[0-9a-f]{16}")
_LINE = re.compile(r"[0-9a-f]{16} [0-9]{1,9} [0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of history at some instant: how many lines there are, and which was the last.

    A line that is still there proves that nothing before it was lost, whatever was written since.
    So whoever removes what is finished must spare the record that holds the last line.
    """

    moves: int = 0
    id: str = ""
    """Of the action whose journal holds the last line; empty if it is not known."""
    seq: int = 0
    hash: str = ""
    epoch: int = 0
    """When a rewind was last found, in milliseconds of the store. What was seen before is done
    with."""

    def beyond(self, other: "Tail") -> bool:
        """Whether it is further than the other."""
        return (self.epoch, self.moves) > (other.epoch, other.moves)

    def at(self, line: str) -> "Tail":
        """The same with its last line, `ID SEQ HASH`; without, if that cannot be read."""
        match line.split():
            case [id, seq, hash] if _LINE.fullmatch(line):
                return replace(self, id=id, seq=int(seq), hash=hash)
        return self

    def for_scripts(self) -> str:
        """As a script compares it."""
        return json.dumps(
            {"epoch": self.epoch, "moves": self.moves, "seq": self.seq, "hash": self.hash}
        )

    def text(self) -> str:
        """As it is kept in a file."""
        told = f"{self.epoch} {self.moves} {self.id or '-'} {self.seq} {self.hash or '-'}"
        return f"{zlib.crc32(told.encode()):08x} {told}"

    @classmethod
    def parse(cls, text: str) -> "Tail":
        """Read what `text` wrote. Raises ValueError, also if it is of two pieces."""
        _, epoch, moves, *line = text.split()
        tail = cls(int(moves), epoch=int(epoch)).at(" ".join(line).replace("- 0 -", ""))
        if tail.text() != text.rstrip():
            raise ValueError("not as it was written")
        return tail


class Witness:
    """The furthest tail seen of each store, in files that all workers of a host share.

    A folder that cannot be read or written is said once, and stops nobody: a witness bounds the
    damage of a lost write, and prevents none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, int] = {}
        self._complained = False

    def seen(self, store: str) -> Tail:
        """The furthest tail of this store (by its identity); the beginning at first."""
        try:
            file = self._open(store, create=False)
            return Tail() if file is None else _read(file)
        except (OSError, ValueError) as error:
            self._complain(error)
            return Tail()

    def saw(self, store: str, tail: Tail) -> bool:
        """Remember a tail, if it is further than what is known.

        Returns whether it was written. What a process wrote outlives its death, but a power cut
        only after `keep`.
        """
        if not tail.beyond(self.seen(store)):
            return False
        try:
            file = self._open(store, create=True)
            return file is not None and _write(file, tail)
        except OSError as error:
            self._complain(error)
            return False

    def keep(self, store: str) -> None:
        """Have the host's disk hold what was remembered."""
        try:
            file = self._open(store, create=False)
            if file is not None:
                os.fsync(file)
        except OSError as error:
            self._complain(error)

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            log.error("a rewind of the store may not be noticed: %s: %s", self._folder, error)

    def _open(self, store: str, *, create: bool) -> int | None:
        """The file of a store; None if there is none, or if the identity is none of ours (it is
        whatever lies in Redis)."""
        if store not in self._files:
            if not _IDENTITY.fullmatch(store):
                return None
            if create:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            try:
                self._files[store] = os.open(self._folder / f"witness-{store}", flags, 0o600)
            except FileNotFoundError:
                return None
        return self._files[store]


def _write(file: int, tail: Tail) -> bool:
    """Write a tail that is further than the one there; whether it was written. Whoever holds the
    lock for long has stopped: nobody hangs for a line more."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
    else:
        return False
    try:
        with contextlib.suppress(ValueError):  # of which nothing can be said: written anew
            if not tail.beyond(_read(file)):
                return False
        os.pwrite(file, tail.text().ljust(_WIDTH).encode(), 0)
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _read(file: int) -> Tail:
    """What is there. A read beside a write can see some of both (measured: 1 in 60,000 under a
    stream of writes), and is made again. Raises ValueError if it stays unreadable."""
    for _ in range(_TRIES):
        with contextlib.suppress(ValueError):
            return Tail.parse(os.pread(file, _WIDTH, 0).decode())
        if not os.fstat(file).st_size:  # just made
            return Tail()
    raise ValueError("what is in it was not written by this version, or is damaged")
