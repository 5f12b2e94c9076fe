"""What on-call engineers do: settle by hand, take note, stop and start."""

from collections.abc import Sequence

from tallystick.core import canonical
from tallystick.core.errors import IllegalMove, InvalidInput, NewerRecord
from tallystick.jobs import resolution, view
from tallystick.jobs.desk import Desk
from tallystick.jobs.overview import Overview, Stop, overview
from tallystick.jobs.record import Line, NewerSchema, Record, Tampered
from tallystick.jobs.resolution import RESOLUTIONS
from tallystick.jobs.seals import unseal
from tallystick.jobs.states import HALTED, State
from tallystick.jobs.upkeep import EVERYTHING
from tallystick.jobs.view import ActionRecord, JournalEntry
from tallystick.telemetry import traces

_RESOLVED_ONCE = f"Only what is {', '.join(sorted(HALTED))} is resolved by hand."


class OnCall(Desk):
    """The on-call engineers' part of the service."""

    def resolve(self, id: str, *, to: str, by: str, evidence: str) -> ActionRecord:
        """Settle by hand what the machine could not know: an action that is unknown, corrupt or
        not rolled back. `to` is committed, rolled_back or abandoned; `evidence` says how you know.

        The decision is signed and journaled. Raises `IllegalMove`, `InvalidInput`, `NoSigningKey`.
        """
        id, by = canonical.label(id, field="id"), canonical.label(by, field="by")
        proof = self._words(evidence, "evidence", needed=True)
        if to not in RESOLUTIONS:
            raise InvalidInput(
                field="to",
                problem=f"{to!r} is no resolution",
                remedy=f"Use one of {', '.join(RESOLUTIONS)}.",
            )
        facts = resolution.sign(
            self._signer(),
            id=id,
            to=to,
            by=by,
            proof=proof,
            namespace=self.settings.namespace,
        )
        stored = self.store.read(id)
        try:
            record = unseal(stored)
        except NewerSchema as newer:
            raise NewerRecord(id=id, problem=str(newer)) from None
        except Tampered as problem:
            closed = resolution.closed_by_hand(stored, self.keyring)
            if closed is not None and closed != to:
                raise IllegalMove(id=id, state=closed, to=to, remedy=_RESOLVED_ONCE) from None
            if closed is None:
                self.store.quarantine(stored, str(problem), worker="")
                stored = self.store.read(id)
                self.store.close_damage(stored, State(to), who=by, evidence=facts)
            else:
                self.store.confirm()
            return self.get(id)
        if record.lines[-1].evidence == facts:
            return self._said_before(record)
        if record.state not in HALTED:
            raise IllegalMove(
                id=id,
                state=record.state,
                to=to,
                remedy=_RESOLVED_ONCE,
            )
        with traces.span("resolve", parent=record.trace, action_id=id):
            moved = self.store.move(
                record, State(to), who=by, evidence=facts, due_ms=-1, lease="drop"
            )
            return view.view(moved)

    def acknowledge(self, id: str, *, by: str) -> ActionRecord:
        """Take note of an action that called for a person, which ends its alert."""
        by = canonical.label(by, field="by")

        def step(record: Record) -> ActionRecord:
            note = {"event": "acknowledged"}
            return view.view(self.store.move(record, record.state, who=by, evidence=note))

        return self._decided(id, "acknowledge", step)

    def stop(self, *, by: str, reason: str, action: str | None = None) -> None:
        """Let no new intent begin, of one action type or (without `action`) of all.

        It holds everywhere as soon as this returns. What is in flight is finished by the decision
        table, and what undoes goes on. Journaled; `start` ends it.
        """
        self._switch(action, by=by, reason=self._words(reason, "reason", needed=True), stop=True)

    def start(self, *, by: str, reason: str = "", action: str | None = None) -> None:
        """End a stop of the same scope; waiting actions run within seconds."""
        self._switch(action, by=by, reason=self._words(reason, "reason"), stop=False)

    def _switch(self, action: str | None, *, by: str, reason: str, stop: bool) -> None:
        scope = EVERYTHING if action is None else canonical.label(action, field="action")
        by = canonical.label(by, field="by")
        self.store.switch(scope, stop=stop, who=by, reason=reason)

    def overview(self, *, limit: int = 10) -> Overview:
        """How things stand: what is wrong, what waits for whom, what is under way, with at most
        `limit` actions of each kind. It costs the same with ten actions and with a million."""
        depth = self.transport.depth() if self.transport else 0
        return overview(
            self.store.survey(limit=max(limit, 1), queue_depth=depth),
            self.store.read,
            server=self.store.url,
            namespace=self.settings.namespace,
            stops=[
                Stop(
                    scope=str(line.evidence["scope"]),
                    who=line.who,
                    since=line.at,
                    why=str(line.evidence.get("why", "")),
                )
                for line in self.stops()
            ],
        )

    def stops(self) -> Sequence[JournalEntry]:
        """The stops that hold now, each as the journal line that began it (`evidence.scope`)."""
        unread = {"why": "its journal line cannot be read"}
        return [
            view.entry(line or Line(0, 0, "", "", "?", "", 0, {**unread, "scope": scope}, "", 0))
            for scope, line in self.store.stops().items()
        ]
