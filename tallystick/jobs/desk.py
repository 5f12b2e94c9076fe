"""What every part of the service stands on: its parts, and read-decide-move without races."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tallystick.approvals import Keyring, Signer
from tallystick.core import canonical
from tallystick.core.errors import (
    ActionCorrupt,
    Conflict,
    IllegalMove,
    InvalidInput,
    NewerRecord,
    NoSigningKey,
)
from tallystick.jobs import view
from tallystick.jobs.embedded import EmbeddedServer
from tallystick.jobs.record import NewerSchema, Record, Stored, Tampered
from tallystick.jobs.registry import Registry
from tallystick.jobs.resolution import closed_by_hand, defect
from tallystick.jobs.seals import unseal
from tallystick.jobs.settings import Settings
from tallystick.jobs.states import NEXT, State
from tallystick.jobs.store import Store
from tallystick.jobs.transport import Transport
from tallystick.jobs.view import ActionRecord
from tallystick.telemetry import traces

Answer = TypeVar("Answer")

_CONFLICTS = 200
"""Each means that somebody else's step was stored; a large quorum may vote all at once."""

_SPREAD_SECONDS = 0.01
"""Those who lost against the same step do not all come back at the same instant."""


class Desk:
    """A store, the types known here, the keys, and the way to wake workers."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        signer: Signer | None,
        keyring: Keyring,
        settings: Settings,
        transport: Transport | None = None,
        server: EmbeddedServer | None = None,
    ) -> None:
        self.store = store
        self.registry = registry
        self.signer = signer
        self.keyring = keyring
        self.settings = settings
        self.transport = transport
        self._server = server

    def get(self, id: str) -> ActionRecord:
        """One action, its seals checked; `corrupt` if they do not match. Raises `UnknownId`."""
        return self._shown(self.store.read(canonical.label(id, field="id")))

    def _shown(self, stored: Stored) -> ActionRecord:
        try:
            record = unseal(stored)
            line = record.lines[-1]
            if line.event == "resolved" and (problem := defect(line, stored.id, self.keyring)):
                raise Tampered(problem)
        except NewerSchema as newer:
            return view.damaged(stored, str(newer), state=stored.fields.get("state", ""))
        except Tampered as problem:
            closed = closed_by_hand(stored, self.keyring) or State.CORRUPT
            return view.damaged(stored, str(problem), state=closed)
        return view.view(record)

    def _decided(self, id: str, verb: str, step: Callable[[Record], Answer]) -> Answer:
        """Read, decide, move; and again if someone else moved in between."""
        id = canonical.label(id, field="id")
        last: Conflict | None = None
        for _ in range(_CONFLICTS):
            stored = self.store.read(id)
            try:
                record = unseal(stored)
            except NewerSchema as newer:
                raise NewerRecord(id=id, problem=str(newer)) from None
            except Tampered as problem:
                if closed_by_hand(stored, self.keyring) is None:
                    self.store.quarantine(stored, str(problem), worker="")
                raise ActionCorrupt(id=id, problem=str(problem)) from None
            try:
                with traces.span(verb, parent=record.trace, action_id=id):
                    return step(record)
            except Conflict as conflict:
                last = conflict
                time.sleep(random.uniform(0, _SPREAD_SECONDS))
        assert last is not None
        raise last

    def _said_before(self, record: Record) -> ActionRecord:
        """The answer to whoever says again what is stored. It is their acknowledgement as well, so
        with replicas it waits for them. Raises `NotReplicated`."""
        self.store.confirm()
        return view.view(record)

    def _allow(self, record: Record, to: State, remedy: str) -> None:
        if to not in NEXT[record.state]:
            raise IllegalMove(id=record.id, state=record.state, to=to, remedy=remedy)

    def _signer(self) -> Signer:
        if self.signer is None:
            raise NoSigningKey(path=self.settings.keys_path)
        return self.signer

    @staticmethod
    def _words(text: str, field: str, *, needed: bool = False) -> str:
        clean = canonical.text(text, field=field, line_breaks=True)
        if needed and not clean.strip():
            raise InvalidInput(field=field, problem="it is empty", remedy="Say why.")
        if len(clean.encode()) > canonical.MAX_BYTES:
            raise InvalidInput(field=field, problem="it is over 64 KiB", remedy="Shorten it.")
        return clean
