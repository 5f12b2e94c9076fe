"""Restarts and deploys: whatever state an action is in, no version of the workers loses it."""

import signal

import pytest

from tests.server import actions
from tests.server.conftest import Site, eventually

pytestmark = pytest.mark.server


def test_three_restarts_within_one_lease_lose_nothing(site: Site) -> None:
    ids = [site.approved("item.keyed", f"item-{number}") for number in range(30)]
    for _ in range(3):
        worker = site.worker("--processes", "2")
        done = _committed(site, ids)
        eventually(lambda done=done: _committed(site, ids) > done, "some more are done")  # type: ignore[misc]
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    site.worker("--processes", "2")
    assert {site.at_rest(id, seconds=60) for id in ids} == {"committed"}
    assert {actions.effects(f"item-{number}") for number in range(30)} == {1}


def _committed(site: Site, ids: list[str]) -> int:
    return len(site.tally.store.ids("committed", limit=None)) if ids else 0  # type: ignore[arg-type]


def test_a_deploy_forward_and_back_with_actions_in_every_state_loses_none(site: Site) -> None:
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
    newer.send_signal(signal.SIGTERM)
    assert newer.wait(20) == 0
    assert site.tally.get(approved).attempts == 0

    site.worker()
    assert {site.at_rest(id, seconds=40) for id in (waiting, killed, approved)} == {"committed"}
    assert [actions.effects(item) for item in ("waits", "killed", "slow", "approved")] == [1] * 4
