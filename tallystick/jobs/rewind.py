"""A store whose history went backwards: what it now calls open may have been done, so all of it
goes to a person, and only what is proposed afterwards runs."""

import logging

from tallystick.core.errors import Conflict, LeaseLost, NotReplicated, UnknownId
from tallystick.jobs.record import NewerSchema, Tampered
from tallystick.jobs.seals import unseal
from tallystick.jobs.states import OPEN, State
from tallystick.jobs.store import Store, end_of_history
from tallystick.jobs.witness import Tail, Witness
from tallystick.metrics import counters

log = logging.getLogger("tallystick.witness")

_TRIES = 20


class Historian:
    """Compares the store's history with the witness, again and again."""

    def __init__(self, store: Store, witness: Witness, *, worker: str) -> None:
        self._store = store
        self._witness = witness
        self._worker = worker
        self._name = ""
        self._said: tuple[Tail, int] | None = None
        """The rewind that was said and written down."""

    def check(self) -> bool:
        """Note how far history goes now; after a rewind, halt everything that is open.

        Returns whether history was rewound. Raises `StoreError` if the store fails; what was not
        halted then is halted by the next call.
        """
        seen = self._witness.seen(self._name)  # before the look: others go on writing
        found = self._store.history(seen)
        if found.name != self._name:
            if self._name:
                self._say_replaced(found.name)
            self._name = found.name
            seen = self._witness.seen(found.name)
            found = self._store.history(seen)
        if found.kept:
            self._note(found.tail, seen)
            return False
        self._halt_all(seen, found.tail)
        return True

    def _note(self, tail: Tail, seen: Tail) -> None:
        """With replicas, only what they have on disk is history: the rest may go at a failover,
        and nothing hangs on it."""
        if not tail.beyond(seen):
            return
        again = self._store.history(tail)
        if not again.kept:
            if tail.beyond(again.tail):
                return  # it has just gone back, which the next look finds
            tail = Tail(tail.moves, epoch=tail.epoch)  # no such line: somebody wrote that by hand
        try:
            self._store.confirm()
        except NotReplicated as missed:
            log.debug("history is not noted: %s", missed)
            return
        if self._witness.saw(self._name, tail):
            self._witness.keep(self._name)

    def _say_replaced(self, name: str) -> None:
        told = f"the store {self._name} is gone" + (f", here is {name}" if name else "")
        log.error("%s: what it held is not known here; look for it in a backup", told)
        self._store.bump(counters.REWINDS)
        self._operation("replaced", f"{told}: it was emptied, or the address leads elsewhere")

    def _halt_all(self, seen: Tail, found: Tail) -> None:
        gone = f"line {seen.seq} of action {seen.id} is gone" if seen.id else "some are gone"
        why = (
            f"the store's history was rewound: it counts {found.moves} moves,"
            f" {seen.moves} were seen, and {gone}"
        )
        epoch, ids = self._store.all_open()
        if epoch != found.epoch:
            return  # somebody else is done with it
        if self._said != (seen, found.epoch):
            log.error("%s; everything open is halted until a person has looked", why)
            self._operation("rewound", why)
            self._said = (seen, found.epoch)
        ends = [self._halt(id, f"{why}: it may have been done") for id in ids]
        halted = [end for end in ends if end]
        # What is proposed from now on may run, also for hosts that learn of it later, and for one
        # that cannot write it down. Who dies before, or comes to another server, does it all again.
        done = found.at(halted[-1]) if halted else found
        if self._store.rewind_is_over(done, seen):
            log.error("after the rewind %d open actions were halted", len(halted))

    def _operation(self, event: str, why: str) -> None:
        self._store.note_operation(who=self._worker, event=event, why=why)

    def _halt(self, id: str, why: str) -> str:
        """Halt one action, and give the end of history then; empty if it came to rest by itself."""
        evidence = {"event": "rewound", "why": why}
        for _ in range(_TRIES):
            try:
                stored = self._store.read(id)
            except UnknownId:  # an index names what is not there
                return ""
            if stored.fields.get("state") not in OPEN:
                return ""
            try:
                halted = self._store.move(
                    unseal(stored), State.UNKNOWN, who=self._worker, evidence=evidence, due_ms=-1
                )
                return end_of_history(id, halted.lines[-1])
            except NewerSchema:  # all that matters is that a newer worker does not run it
                self._store.quarantine(stored, why, worker=self._worker)
                return ""
            except Tampered as damage:
                log.warning("action %s is not halted: it is corrupt, %s", id, damage)
                return ""
            except (Conflict, LeaseLost):  # somebody moved it: look again
                continue
        raise Conflict(id=id, what="state", found="one that changes all the time")
