"""What is stored of an action: its sealed content, its journal, and the record folded from both.

The journal is the truth. The fields of the stored hash are its index, kept so that a script can
guard a move; on every read they are compared with the journal, the journal's lines with their
hashes, and the content with its digest. What does not match is `Tampered`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tallystick.approvals import Ballot, Policy, Vote
from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.jobs.states import BIRTH, NEXT, State

SCHEMA = 1


class Tampered(Exception):
    """What is stored does not match its seals; the message says what."""


class NewerSchema(Tampered):
    """It was written by a newer version; it is left alone until that version runs it."""

    kind = "newer-schema"


class UnknownKey(Tampered):
    """It is signed with a key that is not trusted here; it is left alone until it is, since the
    fault may be this process's."""

    kind = "unknown-key"


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
        return Ballot(
            self.id,
            self.sealed()[1],
            self.proposed_by,
            Policy.from_json(self.policy),
            self.challenge,
        )


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
            line = cls(
                stored["seq"],
                stored["at"],
                stored["from"],
                stored["to"],
                stored["who"],
                stored["worker"],
                stored["token"],
                stored["evidence"],
                stored["prev"],
                stored["prev_at"],
            )
            if canonical.dumps(line.as_json()) != text.encode():
                raise Tampered(f"journal line {line.seq} does not match its hash")
        except (ValueError, KeyError, TypeError) as error:
            raise Tampered(f"a journal line is not readable ({error})") from None
        return line


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
    moves: int = 0
    """How many journal lines the store counts in all."""
    identity: str = ""
    """The random name of the store."""
    fence: int = 0
    """The highest fencing token that an action of a fenced type was given."""
    malformed: str = ""
    """The key that is of a foreign type, if one is."""


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
        facts = canonical.normalise(evidence, field="evidence")
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
                Vote.from_json(vote)
                for line in self.lines
                if isinstance(vote := line.evidence.get("vote"), dict)
            ]
        except ValueError as error:
            raise Tampered(str(error)) from None

    @property
    def attempts(self) -> int:
        """How often an intent to act was stored."""
        return len(self.events("intent"))

    @property
    def lost_claims(self) -> int:
        """Claims in a row whose worker left no other trace: it died, each time."""
        count = 0
        for line in reversed(self.lines):
            if line.event != "claimed":
                break
            count += 1
        return count

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


def first_line(digest: str, state: State, *, who: str, event: str) -> Line:
    """The line of birth."""
    return Line(1, 0, "", state, who, "", 0, {"event": event, "digest": digest}, "", 0)


def unseal(stored: Stored) -> Record:
    """Check everything that was read against everything else. Raises `Tampered`."""
    if stored.malformed:
        raise Tampered(f"the key {stored.malformed} is of a foreign type")
    fields = stored.fields
    content, digest = _content(stored)
    lines = tuple(Line.parse(text) for text in stored.journal)
    if not lines:
        raise Tampered("the journal is gone")
    _check_chain(lines, digest)
    last = lines[-1]
    claims = [line for line in lines if line.event == "claimed"]
    owner = str(claims[-1].evidence.get("lease", "")) if claims else ""
    expected = {
        "digest": digest,
        "state": last.to_state,
        "seq": str(last.seq),
        "head": last.hash,
        "at": str(last.at),
        "token": str(last.token),
    }
    for name, value in expected.items():
        if fields.get(name) != value:
            raise Tampered(f"the stored {name} does not match the journal")
    if fields.get("owner") not in {owner, ""} or fields.keys() - expected.keys() != _UNINDEXED:
        raise Tampered("the stored owner or field list does not match the journal")
    return Record(
        content, digest, lines, fields["owner"], stored.now, stored.lease_ms, stored.fence
    )


def tip_of_damage(stored: Stored) -> Tip:
    """The end of an action that does not unseal, read for what it is worth: enough to close it."""
    number = {name: text for name, text in stored.fields.items() if text.isdecimal()}
    return Tip(
        stored.fields.get("state", ""),
        int(number.get("seq", len(stored.journal))),
        stored.fields.get("head", ""),
        int(number.get("at", 0)),
        int(number.get("token", 0)),
        stored.fields.get("owner", ""),
    )


_UNINDEXED = {"content", "owner"}


def _content(stored: Stored) -> tuple[Content, str]:
    text = stored.fields.get("content", "")
    digest = canonical.digest(text.encode())
    if stored.fields.get("digest") != digest:
        raise Tampered("the content does not match its digest")
    try:
        parsed = canonical.parse(text)
        schema = parsed["schema"]
        if isinstance(schema, int) and schema > SCHEMA:
            raise NewerSchema(f"it has schema {schema}, and this version knows {SCHEMA}")
        content = Content(**parsed)
        content.ballot  # noqa: B018 - a policy that cannot be read is tampering too
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Tampered(f"the content is not readable ({canonical.told(error)})") from None
    if content.id != stored.id:
        raise Tampered(f"the content belongs to action {content.id!r}")
    return content, digest


def _reachable(state: str) -> set[str]:
    """The state itself (a note) and those one arrow away; empty for what is no state."""
    return {state, *NEXT[State(state)]} if state in set(State) else set()


def _check_chain(lines: Sequence[Line], digest: str) -> None:
    before: Line | None = None
    for line in lines:
        if before is None:
            if line.seq != 1 or line.prev or line.prev_at or line.to_state not in BIRTH:
                raise Tampered("the journal does not begin at its beginning")
            if line.evidence.get("digest") != digest:
                raise Tampered("the journal was begun for other content")
        else:
            if (line.seq, line.prev, line.prev_at) != (before.seq + 1, before.hash, before.at):
                raise Tampered(f"journal line {line.seq} does not follow line {before.seq}")
            if line.from_state != before.to_state or line.token < before.token:
                raise Tampered(f"journal line {line.seq} does not continue line {before.seq}")
            if line.to_state not in _reachable(line.from_state):
                raise Tampered(f"journal line {line.seq} is not a legal move")
        before = line
