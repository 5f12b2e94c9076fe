"""Work that was done twice or lost: killed workers, doubled recoverers, work that kills."""

import os
import signal

import pytest
from rq import Queue
from rq.job import JobStatus
from rq.registry import StartedJobRegistry
from rq.serializers import JSONSerializer

from tallystick.jobs.connection import connect
from tallystick.jobs.transport import ENTRY_POINT
from tests.cases.actions import POINTS, UNDO, VERIFY, begin, end
from tests.cases.conftest import alerts, forget_rq, frozen, gone
from tests.crash.processes import GONE, children, status
from tests.server import actions
from tests.server.conftest import Site, eventually

pytestmark = [pytest.mark.server, pytest.mark.crash]


@pytest.mark.parametrize(
    ("name", "at_last"), [("item.keyed", "committed"), ("item.readable", "unknown")]
)
def test_an_action_whose_worker_was_killed_is_found_without_anything_of_rq(
    site: Site, name: str, at_last: str
) -> None:
    """Case 1: worker and work-horse are killed between intent and effect."""
    actions.arm("kill-all-before")
    id = site.approved(name, "killed")
    site.worker()
    eventually(lambda: gone(site), "the worker dies")
    forget_rq(site)
    site.worker()
    assert site.at_rest(id) == at_last
    assert actions.effects("killed") == (at_last == "committed")
    if at_last == "unknown":
        eventually(lambda: "outcome_unknown" in site.log(1), "a person is called")


def test_a_finished_action_that_rq_calls_abandoned_stays_finished(site: Site) -> None:
    """Case 3: RQ's clean-up takes the finished job for an abandoned one, and retries it."""
    id = site.approved("item.readable", "good")
    first = site.worker()
    assert site.at_rest(id) == "committed"
    first.terminate()
    first.wait(20)
    before = site.tally.history(id)
    forget_rq(site)

    client = connect(site.server.url, timeout=5, retries=False, decode=False)
    queue = Queue("tallystick", connection=client, serializer=JSONSerializer)
    job = queue.enqueue(ENTRY_POINT, id)
    job.retries_left = 1
    job.save()
    job.set_status(JobStatus.STARTED)
    queue.remove(job)
    registry = StartedJobRegistry(queue=queue)
    client.zadd(registry.key, {f"{job.id}:lost": 1})
    registry.cleanup()
    assert queue.job_ids == [job.id], "RQ has it run again"

    site.worker()
    eventually(lambda: not queue.job_ids, "the second wake-up is taken")
    eventually(lambda: not site.tally.store.due_now(), "nothing is left to do")
    site.workers[1].terminate()
    assert site.workers[1].wait(20) == 0
    client.close()
    assert site.tally.history(id) == before
    assert actions.effects("good") == 1
    assert alerts(site, id) == []


def test_ten_claimed_actions_outlive_redis_and_every_worker(site: Site) -> None:
    """Case 13: Redis is killed with ten actions claimed, and with it whoever held them."""
    begin("slow", site.folder)
    ids = [site.approved("case.held", f"held-{number}") for number in range(10)]
    site.worker("--processes", "10")
    eventually(lambda: all(site.tally.get(id).attempts for id in ids), "all are claimed")
    site.server.stop()
    site.workers[0].kill()
    end("slow", site.folder)
    site.server.start()
    site.worker("--processes", "2")
    assert {site.at_rest(id, seconds=30) for id in ids} == {"committed"}
    assert {actions.effects(f"held-{number}") for number in range(10)} == {1}


def test_two_recoverers_and_the_first_owner_come_to_one_decision(site: Site) -> None:
    """Case 27: two workers recover what a third, frozen with its intent stored, still believes
    to hold."""
    begin("freeze", site.folder)
    id = site.approved("case.frozen", "frozen")
    owner = site.worker()
    horse = frozen(owner)
    site.worker()
    site.worker()
    assert site.at_rest(id) == "committed"
    decided = site.tally.history(id)
    os.kill(horse, signal.SIGCONT)
    os.kill(owner.pid, signal.SIGCONT)
    eventually(lambda: status(horse) in GONE, "the kernel's timer ends the late work-horse")
    eventually(lambda: len(children(owner.pid)) == 1, "its worker goes on with a new one")
    assert site.tally.history(id) == decided
    assert site.events(id).count("claimed") == 2
    assert actions.effects("frozen") == 1


def test_an_approval_shows_by_which_attempt_it_was_used_although_that_told_nothing(
    site: Site,
) -> None:
    """Case 33: everything dies right after the effect, before anything is reported."""
    actions.arm("kill-all-after")
    id = site.approved("item.blind", "silent")
    site.worker()
    eventually(lambda: gone(site), "the worker dies")
    used = site.tally.get(id)
    assert (used.state, used.attempts, used.result) == ("running", 1, None)
    assert [vote.who for vote in used.approvals] == ["approver"]
    site.worker()
    assert site.at_rest(id) == "unknown"
    found = site.tally.get(id)
    assert (found.attempts, found.approvals) == (1, used.approvals)
    assert actions.effects("silent") == 1
    eventually(lambda: "outcome_unknown" in site.log(1), "a person is called")


@pytest.mark.parametrize("point", POINTS)
def test_an_action_that_kills_each_worker_comes_to_rest(site: Site, point: str) -> None:
    """Case 101: native code kills the work-horse at the same point, every time."""
    id = site.approved("case.poison", "poison")
    begin(point, site.folder)
    site.worker()
    assert site.at_rest(id) == ("rollback_failed" if point == UNDO else "unknown")
    found = site.tally.get(id)
    sent = int(point in {VERIFY, UNDO})
    assert (found.attempts, actions.effects("poison")) == (sent, sent)
    assert "workers died over it" in found.why
    eventually(lambda: alerts(site, id), "a person is called")
    other = site.approved("item.readable", "healthy")
    assert site.at_rest(other) == "committed"


def test_a_program_that_an_effect_started_dies_with_its_work_horse(site: Site) -> None:
    """Case 107: the work-horse is killed at the deadline; what its effect started would go on."""
    begin("slow", site.folder)
    id = site.approved("case.delegating", "late")
    site.worker()
    assert site.at_rest(id) == "unknown"
    program = int((site.folder / "program").read_text())
    eventually(lambda: status(program) in GONE, "the program is dead")
    end("slow", site.folder)
    assert actions.effects("late") == 0


def test_a_program_that_outlives_its_worker_is_never_joined_by_a_second(site: Site) -> None:
    """Case 107: the whole worker is killed, so nobody is left to end what its effect started."""
    begin("slow", site.folder)
    id = site.approved("case.delegating", "late")
    site.worker()
    program = site.folder / "program"
    eventually(program.exists, "the program runs")
    site.workers[0].kill()
    site.worker()
    assert site.at_rest(id) == "unknown"
    end("slow", site.folder)
    pid = int(program.read_text())
    eventually(lambda: status(pid) in GONE, "the program has come to its end")
    assert actions.effects("late") == 1
    assert (site.tally.get(id).state, site.tally.get(id).attempts) == ("unknown", 1)


def test_a_worker_that_was_there_all_along_finds_what_another_lost(site: Site) -> None:
    """Case 112: nobody starts after the death, so recovery at boot would find nothing."""
    begin("freeze", site.folder)
    id = site.approved("case.frozen", "lost")
    victim = site.worker()
    frozen(victim)
    site.worker()
    bystander = site.approved("item.readable", "bystander")
    assert site.at_rest(bystander) == "committed"
    victim.kill()
    assert site.at_rest(id) == "committed"
    assert actions.effects("lost") == 1
