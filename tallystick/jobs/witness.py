"""The witness: how far history went, as this host saw it, kept outside Redis.

Redis counts every move. If it ever counts fewer than were seen, or the last line that was seen is
not there, its history was rewound (an old AOF was restored, a lagging replica promoted).
"""

import fcntl
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger("tallystick.witness")

_WIDTH = 160
"""Bytes of the file: always the same, so that one write replaces all of it."""

_IDENTITY = re.compile(r"[0-9a-f]{16}")


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

    def text(self) -> str:
        """As it is stored in a file."""
        return " ".join((str(self.moves), self.id, str(self.seq), self.hash)).strip()

    @classmethod
    def parse(cls, text: str) -> "Tail":
        """Read what `text` wrote, or a bare number. Raises ValueError."""
        moves, *last = text.split()
        if len(last) != 3:
            return cls(int(moves))
        return cls(int(moves), last[0], int(last[1]), last[2])


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
        except OSError as error:
            self._complain(error)
            return Tail()

    def saw(self, store: str, tail: Tail, *, after_rewind: bool = False) -> bool:
        """Remember a tail, if it is further than what is known; a nearer one only `after_rewind`.

        Returns whether it was written. What a process wrote outlives its death, but a power cut
        only after `keep`.
        """
        if tail.moves <= self.seen(store).moves and not after_rewind:
            return False
        try:
            file = self._open(store, create=True)
            return file is not None and _write(file, tail, anyhow=after_rewind)
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

    def _complain(self, error: OSError) -> None:
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


def _write(file: int, tail: Tail, *, anyhow: bool) -> bool:
    """Write a tail that is further than the one there (or `anyhow`); whether it was written."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        if tail.moves <= _read(file).moves and not anyhow:
            return False
        os.pwrite(file, tail.text().ljust(_WIDTH).encode(), 0)
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _read(file: int) -> Tail:
    try:
        return Tail.parse(os.pread(file, _WIDTH, 0).decode())
    except ValueError:  # just made, and empty
        return Tail()
