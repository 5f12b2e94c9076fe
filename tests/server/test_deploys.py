"""Restarts and deploys: whatever state an action is in, no version of the workers loses it."""

import signal
import subprocess
from pathlib import Path

import pytest

from tallystick import State
from tallystick.jobs.registry import Registry
from tests.server import actions
from tests.server.conftest import ACTIONS, Server, Site, eventually, opened

pytestmark = pytest.mark.server


ONE_LEASE = 60
"""Seconds; these tests are over long before, so nothing in them has waited for a lease to end."""


def test_three_restarts_within_one_lease_lose_nothing_and_wait_for_none(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, server, ACTIONS, monkeypatch, lease=ONE_LEASE) as site:
        ids = [site.approved("item.keyed", f"item-{number}") for number in range(30)]
        for _ in range(3):
            worker = site.worker("--processes", "2")
            done = len(committed(site))
            eventually(lambda done=done: len(committed(site)) > done, "some more are done")  # type: ignore[misc]
            stop(worker)
        site.worker("--processes", "2")
        assert {site.at_rest(id, seconds=30) for id in ids} == {"committed"}
        assert {site.tally.get(id).fencing_token for id in ids} == {1}
        assert {actions.effects(f"item-{number}") for number in range(30)} == {1}


def test_three_kills_of_a_whole_worker_lose_nothing(site: Site) -> None:
    ids = [site.approved("item.keyed", f"item-{number}") for number in range(30)]
    for _ in range(3):
        worker = site.worker("--processes", "2")
        done = len(committed(site))
        eventually(lambda done=done: len(committed(site)) > done, "some more are done")  # type: ignore[misc]
        worker.kill()
        worker.wait(20)
    site.worker("--processes", "2")
    assert {site.at_rest(id, seconds=60) for id in ids} == {"committed"}
    assert {actions.effects(f"item-{number}") for number in range(30)} == {1}


def test_a_worker_that_is_stopped_hands_over_what_does_not_finish(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, server, ACTIONS, monkeypatch, lease=ONE_LEASE) as site:
        site.settings = site.settings.model_copy(update={"effect_deadline_seconds": 1})
        actions.arm("hang-before")
        id = site.approved("item.keyed", "hung")
        worker = site.worker()
        eventually(lambda: site.tally.get(id).state == "running", "the effect has begun")
        stop(worker)
        assert site.tally.get(id).state == "running"
        site.worker()
        assert site.at_rest(id) == "committed"
        assert (site.tally.get(id).attempts, actions.effects("hung")) == (2, 1)


def committed(site: Site) -> list[str]:
    return site.tally.store.ids(State.COMMITTED, limit=None)


def test_a_deploy_of_other_types_and_its_reversal_lose_no_action(site: Site) -> None:
    """N knows item.*; N+1 knows only other.*; N comes back."""
    waiting = site.tally.propose(
        "item.readable", {"item": "waits", "value": "new"}, key="waits", by="producer"
    ).id
    actions.arm("kill-all-after")
    killed = site.approved("item.readable", "killed")
    site.worker().wait(20)
    (site.folder / "slow").touch()
    slow = site.approved("item.slow", "slow")
    old = site.worker()
    eventually(lambda: site.tally.get(slow).state == "running", "one is running")
    old.send_signal(signal.SIGTERM)
    approved = site.approved("item.keyed", "approved")

    newer = site.worker("--actions", "tests.server.other_actions")
    eventually(lambda: "work-horse" in site.log(2), "the new version is up")
    (site.folder / "slow").unlink()
    assert old.wait(20) == 0
    assert site.at_rest(slow) == "committed"
    site.tally.approve(waiting, by="approver")
    unknown = "unknown_types|item.keyed"
    eventually(lambda: site.tally.store.snapshot().counters.get(unknown), "it is left alone")
    stop(newer)
    assert site.tally.get(approved).attempts == 0

    site.worker()
    assert {site.at_rest(id, seconds=40) for id in (waiting, killed, approved)} == {"committed"}
    assert [actions.effects(item) for item in ("waits", "killed", "slow", "approved")] == [1] * 4


NEXT = "tests.server.next_actions"


def test_a_release_and_its_reversal_lose_no_action_of_either(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N, N+1 with the same types in another version, N, and N+1 again."""
    with opened(tmp_path, server, ACTIONS, monkeypatch, lease=ONE_LEASE) as site:
        ends = {
            in_flight(site, "item.keyed", "kill-all-before"): "committed",
            in_flight(site, "item.readable", "kill-all-verify"): "committed",
            in_flight(site, "item.wrong", "kill-all-undo"): "rollback_failed",
            in_flight(site, "item.blind", "kill-all-after"): "unknown",
        }
        states = ["running", "verifying", "rolling_back", "running"]
        assert [site.tally.get(id).state for id in ends] == states
        for id in ends:
            assert site.tally.store.release(id, site.tally.store.load(id).owner), "its lease ends"
        approved = site.approved("item.keyed", "approved")
        waiting = site.tally.propose(
            "item.readable", {"item": "waits", "value": "new"}, key="waits", by="producer"
        ).id
        ends |= {approved: "committed", waiting: "committed"}
        histories = {id: site.tally.history(id) for id in ends}

        before, site.tally.registry = site.tally.registry, Registry.load([NEXT])
        newer = site.worker("--actions", NEXT)
        theirs = site.approved("item.keyed", "theirs")
        assert site.at_rest(theirs) == "committed"
        moving = {site.tally.get(id).action for id in ends if id != waiting}
        eventually(lambda: moving <= left_alone(site), "each of them was met")
        stop(newer)
        assert {id: site.tally.history(id) for id in ends} == histories
        later = site.approved("item.wrong", "later")

        site.tally.registry = before
        site.tally.approve(waiting, by="approver")
        older = site.worker()
        assert {id: site.at_rest(id, seconds=40) for id in ends} == ends
        assert {actions.effects(site.tally.get(id).params["item"]) for id in ends} == {1}
        stop(older)
        assert (site.tally.get(later).state, site.tally.get(later).attempts) == ("approved", 0)

        site.worker("--actions", NEXT)
        assert site.at_rest(later, seconds=40) == "rolled_back"


def stop(worker: subprocess.Popen[bytes]) -> None:
    """End a worker warmly."""
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0


def in_flight(site: Site, name: str, arm: str) -> str:
    """An action whose whole worker was killed at this point; its id."""
    actions.arm(arm)
    id = site.approved(name, arm)
    site.worker().wait(20)
    return id


def left_alone(site: Site) -> set[str]:
    """The types of which some action was met by a worker that does not know them."""
    counted = site.tally.store.snapshot().counters
    return {field.partition("|")[2] for field in counted if field.startswith("unknown_types|")}
