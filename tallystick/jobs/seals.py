"""The seals: everything that was read of an action, compared with everything else.

The fields of the stored hash are the journal's index, kept so that a script can guard a move; on
every read they are compared with the journal, the journal's lines with their hashes and with each
other, and the content with its digest. What does not match is `Tampered`.
"""

from collections.abc import Sequence

from tallystick.core import canonical
from tallystick.jobs.action import Protection
from tallystick.jobs.record import (
    LATEST,
    SCHEMA,
    Content,
    Line,
    NewerSchema,
    Record,
    Stored,
    Tampered,
    Tip,
)
from tallystick.jobs.states import BIRTH, NEXT, State


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
    record = Record(
        content, digest, lines, fields["owner"], stored.now, stored.lease_ms, stored.fence
    )
    if any(not vote.who for vote in record.votes):  # reading them all checks their form
        raise Tampered("a stored vote names nobody")
    return record


def is_quarantined(stored: Stored) -> bool:
    """Whether a worker has closed this action as corrupt, and it was not touched since."""
    last = last_line(stored)
    return (
        last is not None
        and last.to_state == State.CORRUPT
        and (stored.fields.get("state"), stored.fields.get("head")) == (State.CORRUPT, last.hash)
    )


def last_line(stored: Stored) -> Line | None:
    """The end of the journal, if it can be read."""
    try:
        return Line.parse(stored.journal[-1]) if stored.journal else None
    except Tampered:
        return None


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
        _check_types(content)
        content.ballot  # noqa: B018 - a policy that cannot be read is tampering too
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Tampered(f"the content is not readable ({canonical.told(error)})") from None
    if content.id != stored.id:
        raise Tampered(f"the content belongs to action {content.id!r}")
    return content, digest


_TEXTS = (
    "id",
    "key",
    "action",
    "reason",
    "proposed_by",
    "precondition",
    "protection",
    "namespace",
)


def _check_types(content: Content) -> None:
    """Raises ValueError unless every field is of its type."""
    kinds: dict[str, tuple[type, ...]] = dict.fromkeys(_TEXTS, (str,))
    kinds |= dict.fromkeys(("params", "rollback", "policy"), (dict,))
    kinds |= dict.fromkeys(("version", "expires_at", "schema"), (int,))
    kinds |= dict.fromkeys(("challenge", "compensates"), (str, type(None)))
    for name, allowed in kinds.items():
        if type(getattr(content, name)) not in allowed:
            raise ValueError(f"the field {name!r} is malformed")
    if not 0 <= content.expires_at <= LATEST or content.protection not in set(Protection):
        raise ValueError("the expiry or the protection is malformed")


def reachable(state: str) -> set[str]:
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
            if line.to_state not in reachable(line.from_state):
                raise Tampered(f"journal line {line.seq} is not a legal move")
        before = line
