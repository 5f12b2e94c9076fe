"""What an earlier version stored is read, shown and finished by this one."""

import json
from pathlib import Path
from typing import Any

import pytest

from tallystick.approvals import Keyring
from tallystick.core import canonical
from tallystick.core.errors import NewerRecord
from tallystick.jobs.record import SCHEMA
from tallystick.jobs.states import OPEN, State
from tallystick.testing import Bench
from tests.golden.make import bring_about, dump
from tests.golden.types import TYPES, World

FOLDER = Path(__file__).parent
VERSIONS = sorted(path.stem for path in FOLDER.glob("v*.json"))
CASES = [(version, state) for version in VERSIONS for state in State]


def restored(version: str, state: State) -> tuple[Bench, dict[str, Any]]:
    """A bench whose store holds the golden action."""
    golden = json.loads((FOLDER / f"{version}.json").read_text())
    found = golden["actions"][state.value]
    World.reset()
    bench = Bench(*TYPES)
    bench.tally.keyring = Keyring(golden["trusted"])
    keys, id = bench.tally.store.keys, found["shown"]["id"]
    bench.redis.hset(keys.action(id), mapping=found["action"])
    bench.redis.rpush(keys.journal(id), *found["journal"])
    bench.redis.zadd(keys.index(state), {id: 1})
    bench.redis.zadd(keys.due, {id: 1})
    return bench, found


def test_there_is_a_golden_file_for_the_current_schema() -> None:
    assert f"v{SCHEMA}" in VERSIONS


@pytest.mark.parametrize(("version", "state"), CASES)
def test_a_stored_action_is_shown_as_it_was_shown_then(version: str, state: State) -> None:
    bench, found = restored(version, state)
    shown = bench.tally.get(found["shown"]["id"]).model_dump(mode="json")
    assert {name: shown[name] for name in found["shown"]} == found["shown"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("state", sorted(OPEN - {State.WAITING_FOR_APPROVAL}))
def test_a_stored_action_in_flight_is_brought_to_rest(version: str, state: State) -> None:
    bench, found = restored(version, state)
    World.value = {State.VERIFYING: 1, State.ROLLING_BACK: 0}.get(state, World.value)
    bench.tally.store.postpone(found["shown"]["id"], until_ms=0)
    record = bench.run(found["shown"]["id"])
    ends = {
        State.APPROVED: State.COMMITTED,
        State.RUNNING: State.UNKNOWN,
        State.VERIFYING: State.COMMITTED,
        State.ROLLING_BACK: State.ROLLED_BACK,
    }
    assert record.state is ends[state]


@pytest.mark.parametrize("state", list(State))
def test_this_version_stores_what_the_golden_file_of_its_schema_holds(state: State) -> None:
    golden = json.loads((FOLDER / f"v{SCHEMA}.json").read_text())["actions"][state.value]
    bench = Bench(*TYPES)
    now = dump(bench, bring_about(bench, state))
    assert now["action"].keys() == golden["action"].keys()
    assert _shape(now["journal"]) == _shape(golden["journal"])
    assert now["shown"].keys() >= golden["shown"].keys()


def test_what_a_newer_version_wrote_is_left_alone_and_counted() -> None:
    bench = Bench(*TYPES)
    id = bench.approved("golden.set", {"to": 1})
    keys = bench.tally.store.keys
    content = json.loads(bench.redis.hget(keys.action(id), "content") or "")
    data = canonical.dumps(content | {"schema": SCHEMA + 1, "novelty": True})
    newer = {"content": data.decode(), "digest": canonical.digest(data)}
    for name, value in newer.items():
        bench.redis.hset(keys.action(id), name, value)
    World.reset()
    assert bench.run(id).state is State.APPROVED
    assert World.effects == []
    counted = bench.tally.store.snapshot().counters
    assert counted["unknown_types|newer-schema"] == 1
    assert "security_events|corrupt_record" not in counted
    with pytest.raises(NewerRecord, match=f"schema {SCHEMA + 1}"):
        bench.tally.cancel(id, by="producer")


def _shape(journal: list[str]) -> list[tuple[str, str, list[str]]]:
    lines = [json.loads(text) for text in journal]
    return [(line["from"], line["to"], sorted(line["evidence"])) for line in lines]
