"""What producers, approvers and on-call engineers call: propose, decide, look, settle."""

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from tallystick.approvals import (
    APPROVE,
    REJECT,
    Keyring,
    Objection,
    Outcome,
    Signer,
    Vote,
    create,
    load_keyring,
    load_signer,
    objection,
    tally,
)
from tallystick.core import canonical
from tallystick.core.errors import (
    ActionCorrupt,
    ActionExpired,
    ApproverNotAllowed,
    Conflict,
    IllegalMove,
    InvalidInput,
    NoSigningKey,
    WaitTimeout,
    WrongAnswer,
)
from tallystick.jobs import view
from tallystick.jobs.embedded import EmbeddedServer
from tallystick.jobs.proposal import propose
from tallystick.jobs.record import Line, Record, Tampered, unseal
from tallystick.jobs.registry import Registry
from tallystick.jobs.settings import Settings
from tallystick.jobs.states import AT_REST, HALTED, NEXT, State
from tallystick.jobs.store import Store
from tallystick.jobs.transport import Transport
from tallystick.jobs.view import ActionRecord, JournalEntry

Answer = TypeVar("Answer")

_CONFLICTS = 10
_WAKE_MS = 2000
"""How soon the recoverer looks after an approval whose wake-up was lost."""
_POLL_SECONDS = 0.05

RESOLUTIONS = (State.COMMITTED, State.ROLLED_BACK, State.ABANDONED)
"""Where a person may take an action that is unknown, corrupt or not rolled back."""


class Tallystick:
    """The queue of approved actions. Get one with `from_settings`; close it, or use `with`.

    Every method raises a `TallystickError` that says what to do; a `StoreError` among them means
    that the store did not confirm, and the same call may be repeated.
    """

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

    @classmethod
    def from_settings(
        cls, settings: Settings | None = None, *, actions: Iterable[str] | None = None
    ) -> Self:
        """Open what the environment names (see `Settings`), with the embedded server if it names
        no Redis. `actions` are modules that define action types, instead of TALLYSTICK_ACTIONS.
        """
        settings = settings or Settings.load()
        registry = Registry.load(settings.actions if actions is None else actions)
        signer, keyring = _keys(settings)
        server = None if settings.redis_url else EmbeddedServer.join(settings.data_dir)
        url = server.url if server else str(settings.redis_url)
        return cls(
            Store.connect(url, settings.namespace, timeout=min(5.0, settings.lease_seconds / 3)),
            registry,
            signer=signer,
            keyring=keyring,
            settings=settings,
            transport=Transport.connect(url, settings),
            server=server,
        )

    @property
    def url(self) -> str:
        """Where the store is, with credentials: for worker processes, not for logs."""
        return self._server.url if self._server else str(self.settings.redis_url)

    def close(self) -> None:
        """Give back the connections and leave the embedded server."""
        self.store.close()
        if self.transport:
            self.transport.close()
        if self._server:
            self._server.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- producers ---------------------------------------------------------------------------

    def propose(
        self, name: str, params: Any, *, key: str, by: str, reason: str = ""
    ) -> ActionRecord:
        """Propose an action; it waits for approval. `params` is a mapping or the type's model.

        `key` is the idempotency key (at most 256 bytes): the same key with the same content gives
        the same action back, with other content it raises `KeyConflict`. Raises also
        `UnknownAction`, `InvalidInput` (names the field) and `TargetUnreadable`.
        """
        id = propose(self.store, self.registry, name, params, key=key, by=by, reason=reason)
        return self.get(id)

    def cancel(self, id: str, *, by: str, reason: str = "") -> ActionRecord:
        """Withdraw an action that has not begun; it never has an effect. Raises `IllegalMove`."""
        by = canonical.label(by, field="by")
        evidence = {"event": "cancelled", "why": self._words(reason, "reason")}

        def step(record: Record) -> ActionRecord:
            if record.state is State.CANCELLED:
                return view.view(record)
            self._allow(record, State.CANCELLED, "Only what has not begun can be cancelled.")
            return view.view(
                self.store.move(record, State.CANCELLED, who=by, evidence=evidence, due_ms=-1)
            )

        return self._decided(id, step)

    # --- approvers ---------------------------------------------------------------------------

    def approve(self, id: str, *, by: str, answer: str | None = None) -> ActionRecord:
        """Say yes to exactly what is stored, signed with this process's approval key.

        `answer` is what the challenge of an irreversible action asks to type back. Raises
        `ApproverNotAllowed`, `WrongAnswer`, `ActionExpired`, `IllegalMove`, `NoSigningKey`.
        """
        by = canonical.label(by, field="by")
        if answer is not None:
            answer = canonical.text(answer, field="answer")

        def step(record: Record) -> ActionRecord:
            if any(vote.who == by and vote.decision == APPROVE for vote in record.votes):
                return view.view(record)  # said before; the reply may have been lost
            self._still_waiting(record, State.APPROVED)
            ballot = record.content.ballot
            match objection(ballot, record.votes, by, answer):
                case Objection.WRONG_ANSWER:
                    raise WrongAnswer(id=id, challenge=ballot.challenge)
                case Objection() as problem:
                    raise ApproverNotAllowed(who=by, id=id, problem=problem.value)
            vote = self._vote(record, APPROVE, by, answer)
            outcome = tally(ballot, [*record.votes, vote], self.keyring)
            if outcome.outcome is Outcome.INVALID:
                raise ApproverNotAllowed(who=by, id=id, problem=outcome.problem)
            to = State.APPROVED if outcome.outcome is Outcome.APPROVED else record.state
            moved = self.store.move(
                record,
                to,
                who=by,
                evidence={"event": "vote", "vote": vote.as_json(), "missing": outcome.missing},
                due_ms=_WAKE_MS if to is State.APPROVED else None,
            )
            if self.transport and moved.state is State.APPROVED:
                self.transport.wake_soon(moved.id, str(moved.seq))
            return view.view(moved)

        return self._decided(id, step)

    def reject(self, id: str, *, by: str, reason: str) -> ActionRecord:
        """Say no; one no is enough, and it never has an effect. Raises like `approve`."""
        by = canonical.label(by, field="by")
        why = self._words(reason, "reason", needed=True)

        def step(record: Record) -> ActionRecord:
            if any(vote.who == by and vote.decision == REJECT for vote in record.votes):
                return view.view(record)
            self._still_waiting(record, State.REJECTED)
            vote = self._vote(record, REJECT, by, None)
            return view.view(
                self.store.move(
                    record,
                    State.REJECTED,
                    who=by,
                    evidence={"event": "vote", "vote": vote.as_json(), "why": why},
                    due_ms=-1,
                )
            )

        return self._decided(id, step)

    # --- on call -----------------------------------------------------------------------------

    def resolve(self, id: str, *, to: str, by: str, evidence: str) -> ActionRecord:
        """Settle by hand what the machine could not know: an action that is unknown, corrupt or
        not rolled back. `to` is committed, rolled_back or abandoned; `evidence` says how you know.

        The decision is signed and journaled. Raises `IllegalMove`, `InvalidInput`, `NoSigningKey`.
        """
        by = canonical.label(by, field="by")
        proof = self._words(evidence, "evidence", needed=True)
        if to not in RESOLUTIONS:
            raise InvalidInput(
                field="to",
                problem=f"{to!r} is no resolution",
                remedy=f"Use one of {', '.join(RESOLUTIONS)}.",
            )
        facts = self._signed_resolution(id, to, by, proof)
        stored = self.store.read(id)
        try:
            record = unseal(stored)
        except Tampered as problem:
            if stored.fields.get("state") != State.CORRUPT:
                raise ActionCorrupt(id=id, problem=str(problem)) from None
            self.store.close_damage(stored, State(to), who=by, evidence=facts)
            return self.get(id)
        if record.state not in HALTED:
            raise IllegalMove(
                id=id,
                state=record.state,
                to=to,
                remedy=f"Only what is {', '.join(sorted(HALTED))} is resolved by hand.",
            )
        moved = self.store.move(record, State(to), who=by, evidence=facts, due_ms=-1, lease="drop")
        return view.view(moved)

    def acknowledge(self, id: str, *, by: str) -> ActionRecord:
        """Take note of an action that called for a person, which ends its alert."""
        by = canonical.label(by, field="by")

        def step(record: Record) -> ActionRecord:
            note = {"event": "acknowledged"}
            return view.view(self.store.move(record, record.state, who=by, evidence=note))

        return self._decided(id, step)

    # --- everybody ---------------------------------------------------------------------------

    def get(self, id: str) -> ActionRecord:
        """One action, its seals checked; `corrupt` if they do not match. Raises `UnknownId`."""
        stored = self.store.read(canonical.label(id, field="id"))
        try:
            return view.view(unseal(stored))
        except Tampered as problem:
            return view.damaged(stored, str(problem))

    def list(
        self, state: str | None = None, *, attention: bool = False, limit: int = 100
    ) -> Sequence[ActionRecord]:
        """The newest actions, of one state or of all; at most `limit`. With `attention`, only
        those that have called a person and are neither resolved nor acknowledged."""
        if state is not None and state not in set(State):
            raise InvalidInput(
                field="state",
                problem=f"{state!r} is no state",
                remedy=f"Use one of {', '.join(State)}.",
            )
        wanted = State(state) if state else None
        if attention:
            called = [self.get(id) for id in self.store.waiting_for_people()]
            return [found for found in called if wanted in {None, found.state}][:limit]
        return [self.get(id) for id in self.store.ids(wanted, limit=limit)]

    def history(self, id: str) -> Sequence[JournalEntry]:
        """The journal of one action, oldest line first; of a corrupt one, the lines that can be
        read. Raises `UnknownId`."""
        lines = []
        for text in self.store.read(canonical.label(id, field="id")).journal:
            try:
                lines.append(view.entry(Line.parse(text)))
            except Tampered:
                continue
        return lines

    def wait(self, id: str, *, timeout: float | None = None) -> ActionRecord:
        """Wait until an action is at rest (closed, or in need of a person), at most `timeout`
        seconds. Raises `WaitTimeout`; the action goes on by itself."""
        began = time.monotonic()
        while True:
            found = self.get(id)
            if found.state in AT_REST:
                return found
            if timeout is not None and time.monotonic() - began >= timeout:
                raise WaitTimeout(id=id, state=found.state, seconds=timeout)
            time.sleep(_POLL_SECONDS)

    # --- inside --------------------------------------------------------------------------------

    def _decided(self, id: str, step: Callable[[Record], Answer]) -> Answer:
        """Read, decide, move; and again if someone else moved in between."""
        id = canonical.label(id, field="id")
        last: Conflict | None = None
        for _ in range(_CONFLICTS):
            stored = self.store.read(id)
            try:
                record = unseal(stored)
            except Tampered as problem:
                self.store.quarantine(stored, str(problem), worker="")
                raise ActionCorrupt(id=id, problem=str(problem)) from None
            try:
                return step(record)
            except Conflict as conflict:
                last = conflict
        assert last is not None
        raise last

    def _still_waiting(self, record: Record, to: State) -> None:
        if record.state is State.WAITING_FOR_APPROVAL and record.expired:
            evidence = {"event": "expired", "why": "the approval window is over"}
            self.store.move(record, State.EXPIRED, who="clock", evidence=evidence, due_ms=-1)
            raise ActionExpired(id=record.id, expires_at=view.iso(record.content.expires_at))
        decided = record.last("vote")
        by = f" It was decided by {decided.who}." if decided else ""
        if record.state is not State.WAITING_FOR_APPROVAL:
            raise IllegalMove(
                id=record.id,
                state=record.state,
                to=to,
                remedy=f"Only what waits for approval is decided.{by}",
            )

    def _allow(self, record: Record, to: State, remedy: str) -> None:
        if to not in NEXT[record.state]:
            raise IllegalMove(id=record.id, state=record.state, to=to, remedy=remedy)

    def _vote(self, record: Record, decision: str, by: str, answer: str | None) -> Vote:
        vote = Vote(
            record.id, record.digest, decision, by, answer, record.now, self.settings.namespace
        )
        return vote.signed(self._signer())

    def _signed_resolution(self, id: str, to: str, by: str, proof: str) -> dict[str, Any]:
        signer = self._signer()
        claim = {
            "purpose": "tallystick.resolution.v1",
            "action_id": id,
            "to": to,
            "who": by,
            "evidence": proof,
            "namespace": self.settings.namespace,
        }
        signed = {"key_id": signer.key_id, "signature": signer.sign(claim)}
        return {"event": "resolved", "evidence": proof, "resolution": {**claim, **signed}}

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


def _keys(settings: Settings) -> tuple[Signer | None, Keyring]:
    """The approval keys; made at the first use, unless `key_dir` names a folder of one's own."""
    folder = settings.keys_path
    signer = load_signer(folder)
    if signer is None and settings.key_dir is None:
        signer = create(folder)
    return signer, load_keyring(folder)
