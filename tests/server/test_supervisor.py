"""The worker parent: stops warmly, replaces the dead, refuses what it cannot run."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tallystick.jobs.connection import connect
from tests.server import actions
from tests.server.conftest import Site, eventually

pytestmark = pytest.mark.server


def horses(site: Site, number: int = 0) -> list[int]:
    """The pids of a worker's children."""
    parent = site.workers[number].pid
    with open(f"/proc/{parent}/task/{parent}/children") as file:
        return [int(pid) for pid in file.read().split()]


def test_sigterm_lets_the_running_action_finish(site: Site) -> None:
    (site.folder / "slow").touch()
    id = site.approved("item.slow", "slow")
    worker = site.worker()
    eventually(lambda: site.tally.get(id).state == "running", "the effect has begun")
    worker.send_signal(signal.SIGTERM)
    (site.folder / "slow").unlink()
    assert worker.wait(20) == 0
    assert site.tally.get(id).state == "committed"
    assert actions.effects("slow") == 1


def test_a_second_signal_ends_at_once(site: Site) -> None:
    (site.folder / "slow").touch()
    id = site.approved("item.slow", "slow")
    worker = site.worker()
    eventually(lambda: site.tally.get(id).state == "running", "the effect has begun")
    worker.send_signal(signal.SIGTERM)
    eventually(lambda: "stopping" in site.log(), "the first signal is heard")
    worker.send_signal(signal.SIGTERM)
    worker.wait(20)
    assert actions.effects("slow") == 0


def test_work_horses_die_with_their_parent(site: Site) -> None:
    worker = site.worker("--processes", "3")
    eventually(lambda: len(horses(site)) == 3, "three work-horses")
    pids = horses(site)
    worker.kill()
    eventually(lambda: not any(_alive(pid) for pid in pids), "no orphan is left", seconds=5)


def test_a_dead_work_horse_is_replaced(site: Site) -> None:
    site.worker("--processes", "2")
    eventually(lambda: len(horses(site)) == 2, "two work-horses")
    victim = horses(site)[0]
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(horses(site)) == 2 and victim not in horses(site), "it is replaced")
    exits = "workhorse_exits|signal"
    eventually(lambda: site.tally.store.snapshot().counters.get(exits) == 1, "its end is counted")


def test_live_work_horses_are_counted_and_forgotten(site: Site) -> None:
    worker = site.worker("--processes", "2")
    eventually(lambda: site.tally.store.snapshot().workers == 2, "two heartbeats")
    worker.terminate()
    worker.wait(20)
    assert site.tally.store.snapshot().workers == 0


def alive(site: Site) -> tuple[int, list[str]]:
    """What a health check of this host is told: the exit status, and who lives."""
    command = [sys.executable, "-m", "tallystick", "alive", "--json"]
    told = subprocess.run(command, env=site.env, capture_output=True, timeout=30, check=False)
    assert told.stderr == b""
    return told.returncode, json.loads(told.stdout)["work_horses"]


def test_a_health_check_sees_the_work_horses_of_its_own_host_alone(site: Site) -> None:
    site.tally.store.heartbeat(["elsewhere:1"])
    assert alive(site) == (1, [])
    worker = site.worker("--processes", "2")
    eventually(lambda: site.tally.store.snapshot().workers == 3, "two heartbeats more")
    status, names = alive(site)
    assert status == 0
    assert {int(name.rpartition(":")[2]) for name in names} == set(horses(site))
    worker.terminate()
    worker.wait(20)
    assert alive(site) == (1, [])


@pytest.mark.parametrize("flags", [("--isolation", "fork"), ("--recycle", "2")])
def test_work_horses_are_replaced_after_so_many_actions(site: Site, flags: tuple[str, str]) -> None:
    ids = [site.approved("item.readable", f"many-{number}") for number in range(5)]
    site.worker(*flags)
    assert {site.at_rest(id) for id in ids} == {"committed"}
    assert len({_pid(id, site) for id in ids}) >= 3


def test_a_module_that_cannot_be_imported_is_named_and_consumes_nothing(site: Site) -> None:
    id = site.approved("item.readable", "kept")
    found = subprocess.run(
        [sys.executable, "-m", "tallystick", "worker", "--actions", "no.such.module"],
        env=site.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert found.returncode == 1
    assert "no.such.module" in found.stderr
    assert "Traceback" not in found.stderr
    assert site.tally.transport is not None
    assert site.tally.transport.depth() == 1
    assert site.tally.get(id).state == "approved"


def test_an_action_of_a_type_that_the_worker_does_not_know_is_left_alone(site: Site) -> None:
    id = site.approved("item.readable", "foreign")
    site.worker("--burst", "--actions", "tests.server.other_actions").wait(30)
    found = site.tally.get(id)
    assert (found.state, found.attempts) == ("approved", 0)
    assert site.tally.store.snapshot().counters["unknown_types|item.readable"] >= 1
    site.worker()
    assert site.at_rest(id) == "committed"


def test_a_burst_waits_for_what_is_not_due_yet(site: Site) -> None:
    id = site.approved("item.readable", "soon")
    client = connect(site.server.url, timeout=5, retries=False, decode=False)
    client.delete("rq:queue:tallystick")  # as if a work-horse had just taken the wake-up
    client.close()
    assert site.worker("--burst").wait(30) == 0
    assert site.tally.get(id).state == "committed"


def test_a_burst_ends_when_there_is_nothing_to_do(site: Site) -> None:
    assert site.worker("--burst").wait(20) == 0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


def _pid(id: str, site: Site) -> str:
    return next(line.worker for line in site.tally.history(id) if line.worker)


def test_nothing_begins_anywhere_once_stop_has_returned(site: Site) -> None:
    site.worker("--processes", "2")
    eventually(lambda: len(horses(site)) == 2, "two work-horses")
    ids = [site.approved("item.readable", f"drill-{number}") for number in range(20)]
    site.tally.stop(by="oncall", reason="drill")
    begun = {id for id in ids if site.tally.get(id).attempts}
    held = [id for id in ids if id not in begun]
    eventually(lambda: all(site.at_rest(id) == "committed" for id in begun), "those begun finish")
    more = site.approved("item.keyed", "later")
    eventually(lambda: not site.tally.store.due_now(), "the workers have looked at what is due")
    assert {site.tally.get(id).attempts for id in [*held, more]} == {0}
    site.tally.start(by="oncall")
    assert {site.at_rest(id) for id in [*held, more]} == {"committed"}


def test_a_stop_of_one_type_lets_the_others_run(site: Site) -> None:
    site.tally.stop(by="oncall", reason="drill", action="item.readable")
    held, free = site.approved("item.readable", "held"), site.approved("item.keyed", "free")
    site.worker()
    assert site.at_rest(free) == "committed"
    assert site.tally.get(held).state == "approved"
    assert [line.evidence["scope"] for line in site.tally.stops()] == ["item.readable"]


def test_a_stop_lets_what_is_in_flight_be_recovered(site: Site) -> None:
    actions.arm("kill-all-after")
    id = site.approved("item.readable", "flight")
    site.worker().wait(30)
    site.tally.stop(by="oncall", reason="drill")
    assert site.tally.get(id).state == "running"
    site.worker()
    assert site.at_rest(id) == "committed"


def test_a_stop_does_not_let_an_intent_be_sent_again(site: Site) -> None:
    actions.arm("kill-all-before")
    id = site.approved("item.keyed", "flight")
    site.worker().wait(30)
    site.tally.stop(by="oncall", reason="drill")
    site.worker()
    assert site.at_rest(id) == "unknown"
    assert actions.effects("flight") == 0
