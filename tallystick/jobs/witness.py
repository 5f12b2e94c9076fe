"""The witness: how much history this host has seen, kept outside Redis.

Redis counts every move. If it ever counts fewer than were seen, its history was rewound (an old
AOF was restored, a lagging replica promoted): what it now calls open may have been done, so all of
it goes to a person, and only what is proposed afterwards runs.
"""

import fcntl
import logging
import os
from pathlib import Path

from tallystick.core.errors import Conflict
from tallystick.jobs.record import Tampered
from tallystick.jobs.states import OPEN, State
from tallystick.jobs.store import Store

log = logging.getLogger("tallystick.witness")


class Witness:
    """The highest number of moves seen of each store, in files that all workers of a host share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def seen(self, store: str) -> int:
        """How many moves of this store (by its identity) were seen; 0 at first."""
        try:
            return int(self._path(store).read_text() or 0)
        except (FileNotFoundError, ValueError):
            return 0

    def saw(self, store: str, moves: int, *, after_rewind: bool = False) -> None:
        """Remember that so many moves were seen; fewer than before only `after_rewind`."""
        if not store or (moves <= self.seen(store) and not after_rewind):
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._path(store).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            known = int(file.read() or 0)
            if moves > known or after_rewind:
                file.truncate(0)
                file.write(str(moves))
                file.flush()
                os.fsync(file.fileno())

    def _path(self, store: str) -> Path:
        return self._folder / f"witness-{store}"


def check(store: Store, witness: Witness, *, worker: str) -> bool:
    """Compare the store's history with the witness; after a rewind, halt everything that is open.

    Returns whether history was rewound.
    """
    name, _ = store.history()
    seen = witness.seen(name)  # before the count: others go on writing
    _, moves = store.history()
    if moves >= seen:
        witness.saw(name, moves)
        return False
    log.error(
        "the store's history was rewound: it counts %d moves, %d were seen; everything open is"
        " halted. Look at each: tallystick list --state unknown",
        moves,
        seen,
    )
    why = f"the store's history was rewound from {seen} to {moves} moves: it may have been done"
    store.note_operation(who=worker, event="rewound", why=why)
    for state in OPEN:
        for id in store.ids(state, limit=None):
            _halt(store, id, worker, why)
    witness.saw(name, store.history()[1], after_rewind=True)
    return True


def _halt(store: Store, id: str, worker: str, why: str) -> None:
    try:
        record = store.load(id)
        evidence = {"event": "rewound", "why": why}
        store.move(record, State.UNKNOWN, who=worker, evidence=evidence, due_ms=-1)
    except (Tampered, Conflict) as other:  # it will be judged when it is next run
        log.warning("action %s was not halted after the rewind: %s", id, other)
