"""The one command of the stack's demonstration: an approved action lands wrong, and a page comes.

    docker compose run --rm demo

Exits with status 1 if the world, the record or the pager do not show what they must.
"""

import json
import os
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any

import httpx

from tallystick import ActionRecord, Tallystick

PAGER = os.environ.get("PAGER_URL", "http://pager:8080")
ALERT = "TallystickVerificationFailed"
NAME = "shop.reprice"
PATIENCE_SECONDS = 60.0


def approved(tally: Tallystick, **params: Any) -> ActionRecord:
    """Propose as one person, approve as another, and wait until the action is at rest."""
    key = f"demo-{secrets.token_hex(6)}"
    id = tally.propose(NAME, params, key=key, by="painter", reason="the demonstration").id
    tally.approve(id, by="shopkeeper")
    return tally.wait(id, timeout=PATIENCE_SECONDS)


def page() -> dict[str, Any] | None:
    """The page about this action type that stands, once the pager has it: one stays until the
    last failure is acknowledged, and a second failure adds to it."""
    told = httpx.get(f"{PAGER}/pages", timeout=5).raise_for_status().json()
    for found in reversed(told):
        labels = found["labels"]
        if (labels["alertname"], labels.get("action_type")) == (ALERT, NAME):
            return found if found["status"] == "firing" else None
    return None


def until(condition: Callable[[], dict[str, Any] | None], what: str) -> dict[str, Any]:
    """Wait until the condition gives something, and give it; end the demonstration otherwise."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            sys.exit(f"within {PATIENCE_SECONDS:g} s never: {what}")
        time.sleep(0.2)


def must(record: ActionRecord, state: str) -> None:
    print(f"  {record.id}  {record.state}")
    if record.state != state:
        sys.exit(f"it must be {state}; see: docker compose run --rm desk show {record.id}")


def main() -> None:
    with Tallystick.from_settings() as tally:
        print("A price that is painted as approved:")
        must(approved(tally, sign="apples", price="2.00"), "committed")
        print("A price that is painted carelessly:")
        began = time.monotonic()
        wrong = approved(tally, sign="apples", price="3.00", careless=True)
        must(wrong, "rolled_back")
    found = until(page, f"the page {ALERT}")
    print(f"The pager has, {time.monotonic() - began:.1f} s after it was proposed:")
    print(json.dumps(found, indent=2))
    print(
        "When you have looked, take it off:\n"
        f"  docker compose run --rm desk acknowledge {wrong.id} --by you"
    )


if __name__ == "__main__":
    main()
