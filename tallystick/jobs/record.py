"""What is stored of an action: its sealed content, its journal, and the record folded from both.

The journal is the truth; `seals.py` checks that it is whole before anything here is believed.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from tallystick.approvals import Ballot, Policy, Vote
from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.jobs.states import State

SCHEMA = 1


class Tampered(Exception):
    """What is stored does not match its seals; the message says what."""


class LeftAlone(Tampered):
    """It cannot be judged here, which may be this process's fault: it waits for one that can."""

    kind = ""
    """How it is counted."""


class NewerSchema(LeftAlone):
    """It was written by a newer version."""

    kind = "newer-schema"


class UnknownKey(LeftAlone):
    """It is signed with a key that is not trusted here."""

    kind = "unknown-key"


class UnknownParent(LeftAlone):
    """It undoes an action of a type that is not known here."""

    kind = "unknown-parent"


@dataclass(frozen=True, slots=True)
class Content:
    """Everything that an approver decides on. Its canonical bytes are what the digest covers."""

    id: str
    key: str
    action: str
    version: int
    params: dict[str, Json]
    reason: str
    proposed_by: str
    observed: Json
    """The target's state when it was proposed."""
    precondition: str
    """In words: what must still be so when it runs."""
    protection: str
    rollback: dict[str, Json]
    policy: dict[str, Json]
    challenge: str | None
    expires_at: int
    """Milliseconds of the store's clock."""
    namespace: str
    compensates: str | None = None
    """The id of the action that this one undoes."""
    schema: int = SCHEMA

    def sealed(self) -> tuple[str, str]:
        """The canonical text and its digest."""
        data = canonical.dumps({name: getattr(self, name) for name in self.__slots__})
        return data.decode(), canonical.digest(data)

    @property
    def ballot(self) -> Ballot:
        """What is voted on."""
        digest, policy = self.sealed()[1], Policy.from_json(self.policy)
        by, challenge = self.proposed_by, self.challenge
        return Ballot(self.id, digest, by, policy, challenge, self.namespace)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the journal. `hash` covers all of it but `at`, which the next line seals."""

    seq: int
    at: int
    """Milliseconds of the store's clock; 0 until the store has set it."""
    from_state: str
    to_state: str
    who: str
    worker: str
    token: int
    evidence: Mapping[str, Json]
    """What is known: `event` names what happened, the rest is its facts."""
    prev: str
    """The hash of the line before, empty for the first."""
    prev_at: int
    """The time of the line before, 0 for the first."""

    def body(self) -> dict[str, Json]:
        return {
            "seq": self.seq,
            "from": self.from_state,
            "to": self.to_state,
            "who": self.who,
            "worker": self.worker,
            "token": self.token,
            "evidence": dict(self.evidence),
            "prev": self.prev,
            "prev_at": self.prev_at,
        }

    @property
    def hash(self) -> str:
        return hashlib.sha256(canonical.dumps(self.body())).hexdigest()

    @property
    def event(self) -> str:
        return str(self.evidence.get("event", ""))

    def as_json(self) -> dict[str, Json]:
        return {"at": self.at, **self.body(), "hash": self.hash}

    @classmethod
    def parse(cls, text: str) -> "Line":
        """Read a stored line. Raises `Tampered` if it is not one, or its hash does not match."""
        try:
            stored = canonical.parse(text)
            given: list[Any] = [stored[name] for name in _LINE_TYPES]
        except (ValueError, KeyError, TypeError) as error:
            raise Tampered(f"a journal line is not readable ({canonical.told(error)})") from None
        for value, (name, kind) in zip(given, _LINE_TYPES.items(), strict=True):
            if type(value) is not kind or (type(value) is int and not 0 <= value <= LATEST):
                raise Tampered(f"{name!r} of a journal line is malformed")
        line = cls(*given)
        if canonical.dumps(line.as_json()) != text.encode():
            raise Tampered(f"journal line {line.seq} does not match its hash")
        return line


LATEST = 253_402_300_799_000
"""The last millisecond that has a date (and the largest number in a line)."""

_LINE_TYPES = {
    "seq": int,
    "at": int,
    "from": str,
    "to": str,
    "who": str,
    "worker": str,
    "token": int,
    "evidence": dict,
    "prev": str,
    "prev_at": int,
}


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store holds of an action, as read and not yet believed."""

    id: str
    now: int
    """The store's clock, in milliseconds."""
    lease_ms: int
    """What is left of the lease; negative if nobody holds the action."""
    fields: Mapping[str, str]
    journal: Sequence[str]
    fence: int = 0
    """The highest fencing token that an action of a fenced type was given."""
    malformed: str = ""
    """The key that is of a foreign type, if one is."""
    kept: bool = True
    """Whether history still holds its end as the reader had seen it."""


@dataclass(frozen=True, slots=True)
class Tip:
    """The end of a stored action, as a script compares it."""

    state: str
    seq: int
    head: str
    at: int
    token: int
    owner: str

    def line(
        self,
        to: str,
        *,
        who: str,
        worker: str = "",
        token: int | None = None,
        evidence: Mapping[str, Any],
    ) -> Line:
        """The line that would follow, not yet stored."""
        deepest = canonical.MAX_DEPTH + 8  # what it holds has been checked at its own depth
        facts = canonical.normalise(evidence, field="evidence", deepest=deepest)
        assert isinstance(facts, dict)
        token = self.token if token is None else token
        return Line(self.seq + 1, 0, self.state, to, who, worker, token, facts, self.head, self.at)


@dataclass(frozen=True, slots=True)
class Record:
    """An action whose seals match: its content, its journal, and what follows from them."""

    content: Content
    digest: str
    lines: tuple[Line, ...]
    owner: str
    """The random lease token of the last claim, or empty once it is over."""
    now: int
    lease_ms: int = field(default=-2, compare=False)
    fence: int = field(default=0, compare=False)

    @property
    def id(self) -> str:
        return self.content.id

    @property
    def state(self) -> State:
        return State(self.lines[-1].to_state)

    @property
    def seq(self) -> int:
        return self.lines[-1].seq

    @property
    def head(self) -> str:
        return self.lines[-1].hash

    @property
    def at(self) -> int:
        return self.lines[-1].at

    @property
    def token(self) -> int:
        """The fencing token of the last claim."""
        return self.lines[-1].token

    @property
    def leased(self) -> bool:
        """Whether somebody held the action when it was read."""
        return self.lease_ms >= 0

    @property
    def expired(self) -> bool:
        """Whether the approval window is over."""
        return self.now > self.content.expires_at

    @property
    def trace(self) -> str:
        """The W3C traceparent that the proposal was made in, or empty. It is beside what is
        approved, and nothing is decided by it."""
        return str(self.lines[0].evidence.get("trace", ""))

    def events(self, *names: str) -> list[Line]:
        """The lines of these events, oldest first."""
        return [line for line in self.lines if line.event in names]

    def last(self, *names: str) -> Line | None:
        """The newest line of these events."""
        found = self.events(*names)
        return found[-1] if found else None

    @property
    def votes(self) -> list[Vote]:
        """The votes cast, oldest first. Raises `Tampered` if one cannot be read."""
        try:
            return [
                Vote.from_json(vote if isinstance(vote, dict) else {})
                for line in self.lines
                if (vote := line.evidence.get("vote")) is not None
            ]
        except ValueError as error:
            raise Tampered(str(error)) from None

    def sent(self, intent: str) -> list[Line]:
        """The lines of an intent (`intent`, `undo`) after which something may have been sent: all
        but those whose worker said that it had not."""
        lines = self.events(intent)
        for said in self.events("withheld"):
            after = said.evidence.get("after")
            if isinstance(after, int):
                lines = [line for line in lines if not after < line.seq < said.seq]
        return lines

    @property
    def attempts(self) -> int:
        """How often an intent to act was stored, and not withheld."""
        return len(self.sent("intent"))

    @property
    def deaths(self) -> int:
        """How many workers in a row left no trace but a claim, or none but that they died before
        it. One that drew a further token on its own lease is one; whoever holds it now counts."""
        trail = list(takewhile(lambda line: line.event in {"claimed", "died"}, self.lines[::-1]))
        claims = {line.evidence.get("lease"): line.who for line in trail if line.event == "claimed"}
        before = {line.who for line in trail if line.event == "died"}
        return len(claims) + len(before - set(claims.values()))

    def fact(self, event: str, name: str) -> Any:
        """A fact of the newest line of this event, or None."""
        line = self.last(event)
        return line.evidence.get(name) if line else None

    def then(self, line: Line, *, at: int, owner: str, lease_ms: int = -2) -> "Record":
        """The record after this line was stored."""
        now = max(self.now, at)
        lines = (*self.lines, replace(line, at=at))
        return replace(self, lines=lines, owner=owner, now=now, lease_ms=lease_ms)

    @property
    def tip(self) -> Tip:
        """Where the next line goes."""
        last = self.lines[-1]
        return Tip(last.to_state, last.seq, last.hash, last.at, last.token, self.owner)


def first_line(digest: str, state: State, *, who: str, event: str, trace: str = "") -> Line:
    """The line of birth; with the traceparent, if the proposal was made in a trace."""
    evidence = {"event": event, "digest": digest} | ({"trace": trace} if trace else {})
    return Line(1, 0, "", state, who, "", 0, evidence, "", 0)
