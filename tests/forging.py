"""What somebody can do who writes to Redis and knows every format, but holds no approval key.

`stored` puts an action of their own making into the store: content, digest, journal and index
fields all fit together, as far as that can be done without a signature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tallystick import State
from tallystick.approvals import Signer, Vote
from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.jobs.record import Content, Line, Record
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.driving import alerts, counted, lease_runs_out, redis_of
from tests.targets import Bank

Step = tuple[str, Mapping[str, Any]]
"""The state after a line, and its evidence."""

AT = 1_700_000_000_000


def steps_of(record: Record) -> list[Step]:
    """The journal of a record, to be altered."""
    return [(line.to_state, dict(line.evidence)) for line in record.lines]


def journal(digest: str, steps: Sequence[Step]) -> list[Line]:
    """These lines, chained as they should be, begun for this content."""
    lines: list[Line] = []
    before, prev, token = "", "", 0
    for seq, (state, told) in enumerate(steps, 1):
        evidence = dict(told) | ({"digest": digest} if seq == 1 else {})
        token += evidence.get("event") == "claimed"
        prev_at = AT + seq - 1 if lines else 0
        line = Line(seq, AT + seq, before, state, "mallory", "", token, evidence, prev, prev_at)
        lines.append(line)
        before, prev = state, line.hash
    return lines


def stored(bench: Bench, content: Content, steps: Sequence[Step]) -> str:
    """Put this action into the store in place of what is there; its id."""
    text, digest = content.sealed()
    lines = journal(digest, steps)
    claims = [line for line in lines if line.event == "claimed"]
    put(bench, content.id, lines, content=text, digest=digest)
    owner = str(claims[-1].evidence.get("lease", "")) if claims else ""
    redis_of(bench).hset(bench.tally.store.keys.action(content.id), "owner", owner)
    return content.id


def put(bench: Bench, id: str, lines: Sequence[Line], **fields: str) -> None:
    """Replace the journal, and the fields of the hash that follow from it."""
    keys, last = bench.tally.store.keys, lines[-1]
    index = {
        "state": str(last.to_state),
        "seq": str(last.seq),
        "head": last.hash,
        "at": str(last.at),
        "token": str(last.token),
    }
    redis_of(bench).delete(keys.journal(id))
    texts = [canonical.dumps(line.as_json()).decode() for line in lines]
    redis_of(bench).rpush(keys.journal(id), *texts)
    redis_of(bench).hset(keys.action(id), mapping={**index, **fields})
    for state in State:
        redis_of(bench).zrem(keys.index(state), id)
    redis_of(bench).zadd(keys.index(str(last.to_state)), {id: AT})
    redis_of(bench).zadd(keys.due, {id: AT})


def with_vote(record: Record, vote: Mapping[str, Json]) -> list[Step]:
    """The steps of a proposal with this vote as what approved it."""
    return [*steps_of(record)[:1], (State.APPROVED, {"event": "vote", "vote": dict(vote)})]


def vote_for(record: Record, signer: Signer, **changed: Any) -> Vote:
    """A vote on this record by anna, well signed by whatever key this is."""
    content = record.content
    cast = Vote(record.id, record.digest, "approve", "anna", None, AT, content.namespace)
    return replace(cast, **changed).signed(signer)


# --- where it is, and what must come of it -------------------------------------------------------


def action_key(bench: Bench, id: str) -> str:
    return bench.tally.store.keys.action(id)


def journal_key(bench: Bench, id: str) -> str:
    return bench.tally.store.keys.journal(id)


def found_corrupt(bench: Bench, bank: Bank, id: str) -> None:
    """A worker runs it: nothing is done, it is quarantined, counted, and a person is called."""
    already = list(bank.calls)
    lease_runs_out(bench, id)
    assert bench.run(id).state is State.CORRUPT
    assert bank.calls == already
    assert bench.tally.get(id).state is State.CORRUPT
    assert alerts(bench, id)[-1] == "corrupt"
    assert counted(bench)[counters.security_event("corrupt_record")] == 1
    assert id in bench.tally.store.ids(State.CORRUPT)
    assert redis_of(bench).zscore(bench.tally.store.keys.due, id) is None


def can_be_resolved(bench: Bench, id: str) -> None:
    """A person closes it, and it stays closed."""
    closed = bench.tally.resolve(id, to="abandoned", by="oncall", evidence="looked at the bank")
    assert closed.state is State.ABANDONED
    assert bench.tally.get(id).state is State.ABANDONED
    assert redis_of(bench).hget(bench.tally.store.keys.attention, id) is None
