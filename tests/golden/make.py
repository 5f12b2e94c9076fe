"""Write a golden file of what this version stores: `python -m tests.golden.make`.

Run it once for each schema, and never again for an old one: the file is the proof that what was
stored then can be read now. It holds one action in every state, the raw keys of Redis, the public
keys that were trusted, and what the action looks like to its users.
"""

import json
from pathlib import Path
from typing import Any

from tallystick.jobs.record import SCHEMA
from tallystick.jobs.states import State
from tallystick.testing import Bench
from tests.golden.types import TYPES, World

FOLDER = Path(__file__).parent


def bring_about(bench: Bench, state: State) -> str:
    """An action in this state, the way it comes about; its id."""
    World.reset()
    match state:
        case State.WAITING_FOR_APPROVAL:
            return bench.propose("golden.set", {"to": 1}).id
        case State.APPROVED:
            return bench.approved("golden.set", {"to": 1})
        case State.RUNNING:
            return bench.crash(bench.approved("golden.set", {"to": 1}), "after_intent").id
        case State.VERIFYING:
            return bench.crash(bench.approved("golden.set", {"to": 1}), "after_reply").id
        case State.ROLLING_BACK:
            World.wrong = True
            return bench.crash(bench.approved("golden.set", {"to": 1}), "after_undo").id
        case State.REJECTED:
            found = bench.propose("golden.set", {"to": 1})
            return bench.tally.reject(found.id, by="approver", reason="not today").id
        case State.CANCELLED:
            return bench.tally.cancel(bench.propose("golden.set", {"to": 1}).id, by="producer").id
        case State.EXPIRED:
            id = bench.propose("golden.brief", {"to": 1}).id
            while bench.run(id).state is not State.EXPIRED:
                pass  # its window is a millisecond
            return id
        case _:
            return _run(bench, state)


def _run(bench: Bench, state: State) -> str:
    id = bench.approved("golden.set", {"to": 1})
    match state:
        case State.PRECONDITION_FAILED:
            World.value = 7
        case State.FAILED:
            World.refuses = True
        case State.ROLLED_BACK:
            World.wrong = True
        case State.ROLLBACK_FAILED:
            World.wrong = World.stuck = True
        case State.CORRUPT:
            bench.redis.hset(bench.tally.store.keys.action(id), "token", "99")
        case State.UNKNOWN | State.ABANDONED:
            bench.crash(id, "before_effect")
    bench.run(id)
    if state is State.ABANDONED:
        bench.tally.resolve(id, to="abandoned", by="oncall", evidence="looked: not there")
    return id


def dump(bench: Bench, id: str) -> dict[str, Any]:
    """The stored keys of one action, and how it is shown."""
    keys = bench.tally.store.keys
    return {
        "action": bench.redis.hgetall(keys.action(id)),
        "journal": bench.redis.lrange(keys.journal(id), 0, -1),
        "shown": bench.tally.get(id).model_dump(mode="json"),
    }


def main() -> None:
    """Write `vN.json` for the current schema."""
    bench = Bench(*TYPES)
    actions = {}
    for state in State:
        found = dump(bench, bring_about(bench, state))
        assert found["shown"]["state"] == state, (state, found["shown"])
        actions[state.value] = found
    golden = {"trusted": dict(bench.tally.keyring.trusted), "actions": actions}
    path = FOLDER / f"v{SCHEMA}.json"
    path.write_text(json.dumps(golden, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
