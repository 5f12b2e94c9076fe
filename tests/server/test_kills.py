"""SIGKILL of work-horses and of whole workers, before and after the effect, at real targets."""

import time

import pytest

from tests.server import actions
from tests.server.conftest import Site, eventually

pytestmark = [pytest.mark.server, pytest.mark.crash]

SAFE_TO_SEND_AGAIN = ["item.keyed", "item.versioned", "item.fenced"]
NEVER_SENT_AGAIN = ["item.readable", "item.blind"]


@pytest.mark.parametrize("name", [*SAFE_TO_SEND_AGAIN, *NEVER_SENT_AGAIN])
def test_a_clean_run_commits_one_effect(site: Site, name: str) -> None:
    id = site.approved(name, "clean")
    site.worker("--burst").wait(20)
    assert site.at_rest(id) == "committed"
    assert actions.effects("clean") == 1
    assert site.events(id) == ["proposed", "vote", "claimed", "intent", "replied", "verified"]


@pytest.mark.parametrize("victim", ["horse", "all"])
@pytest.mark.parametrize("name", [*SAFE_TO_SEND_AGAIN, "item.readable"])
def test_a_worker_killed_after_the_effect_is_resumed_and_the_effect_is_one(
    site: Site, name: str, victim: str
) -> None:
    actions.arm(f"kill-{victim}-after")
    id = site.approved(name, "killed")
    site.worker()
    if victim == "all":
        eventually(lambda: site.workers[0].poll() is not None, "the worker dies")
        site.worker()
    assert site.at_rest(id) == "committed"
    assert actions.effects("killed") == 1
    assert site.tally.get(id).fencing_token == 2


@pytest.mark.parametrize("victim", ["horse", "all"])
@pytest.mark.parametrize("name", SAFE_TO_SEND_AGAIN)
def test_a_worker_killed_before_the_effect_is_resumed_where_the_target_refuses_doubles(
    site: Site, name: str, victim: str
) -> None:
    actions.arm(f"kill-{victim}-before")
    id = site.approved(name, "killed")
    site.worker()
    if victim == "all":
        eventually(lambda: site.workers[0].poll() is not None, "the worker dies")
        site.worker()
    assert site.at_rest(id) == "committed"
    assert actions.effects("killed") == 1
    assert site.tally.get(id).attempts == 2


@pytest.mark.parametrize("name", NEVER_SENT_AGAIN)
@pytest.mark.parametrize("point", ["before", "after"])
def test_what_may_not_be_sent_again_waits_for_a_person_unless_it_can_be_seen(
    site: Site, name: str, point: str
) -> None:
    actions.arm(f"kill-horse-{point}")
    id = site.approved(name, "killed")
    site.worker()
    seen = name == "item.readable" and point == "after"
    assert site.at_rest(id) == ("committed" if seen else "unknown")
    assert actions.effects("killed") == (1 if point == "after" else 0)
    assert site.tally.get(id).attempts == 1
    if not seen:
        eventually(lambda: "outcome_unknown" in site.log(), "the alert is delivered")


def test_a_dead_work_horse_is_recovered_within_a_second(site: Site) -> None:
    actions.arm("kill-horse-after")
    id = site.approved("item.readable", "quick")
    site.worker("--processes", "2")
    site.at_rest(id)
    lines = {str(line.evidence["event"]): line for line in site.tally.history(id)}
    assert _seconds(lines["intent"].at, lines["verified"].at) < 1.0


def test_a_dead_worker_is_recovered_within_the_lease_and_two_seconds(site: Site) -> None:
    site.worker()
    eventually(lambda: "work-horse" in site.log(), "the first worker is up")
    actions.arm("kill-all-after")
    id = site.approved("item.readable", "slow")
    eventually(lambda: site.workers[0].poll() is not None, "the worker dies")
    died = time.monotonic()
    site.worker()
    assert site.at_rest(id) == "committed"
    assert time.monotonic() - died < site.settings.lease_seconds + 2


@pytest.mark.parametrize("victim", ["horse", "all"])
def test_a_worker_killed_while_the_effect_is_wrong_still_undoes_it(site: Site, victim: str) -> None:
    actions.arm(f"kill-{victim}-after")
    id = site.approved("item.wrong", "wrong")
    site.worker()
    if victim == "all":
        eventually(lambda: site.workers[0].poll() is not None, "the worker dies")
        site.worker()
    # The reply was lost, the reading is foreign, and the target is only readable: a person looks.
    assert site.at_rest(id) == "unknown"
    assert actions.effects("wrong") == 1


def test_a_wrong_effect_is_undone_and_the_world_is_as_before(site: Site) -> None:
    id = site.approved("item.wrong", "wrong")
    site.worker("--burst").wait(20)
    assert site.at_rest(id) == "rolled_back"
    assert (actions.effects("wrong"), actions.effects("wrong", "undo")) == (1, 1)


def test_an_effect_that_overruns_its_deadline_is_killed_and_waits_for_a_person(site: Site) -> None:
    actions.arm("hang-before")
    id = site.approved("item.readable", "hung")
    site.worker()
    assert site.at_rest(id) == "unknown"
    assert "(deadline), holding action" in site.log()
    assert actions.effects("hung") == 0


def test_every_process_may_restart_while_an_action_waits_for_approval(site: Site) -> None:
    found = site.tally.propose(
        "item.readable", {"item": "waits", "value": "new"}, key="waits", by="producer"
    )
    first = site.worker()
    eventually(lambda: "work-horse" in site.log(), "the worker is up")
    first.terminate()
    assert first.wait(20) == 0
    site.server.stop()
    site.server.start()
    site.tally.approve(found.id, by="approver")
    site.worker()
    assert site.at_rest(found.id) == "committed"
    assert actions.effects("waits") == 1


def _seconds(one: str, other: str) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(other) - datetime.fromisoformat(one)).total_seconds()
