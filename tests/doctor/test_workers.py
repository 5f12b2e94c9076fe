"""Workers ask the guard: they take nothing while it refuses, finish what runs, and go on."""

import subprocess
import sys
import time

import pytest

from tests.doctor.conftest import command
from tests.server import actions
from tests.server.conftest import Site, eventually

pytestmark = pytest.mark.server


OFTEN = """
import sys
from tallystick.cli import main
from tallystick.jobs.doctor import Guard
Guard.__init__.__kwdefaults__["every"] = 0.2
sys.exit(main())
"""
"""A worker whose guard looks five times a second."""


def everysec(site: Site) -> None:
    command(site.server, "CONFIG", "SET", "appendfsync", "everysec")


def always(site: Site) -> None:
    command(site.server, "CONFIG", "SET", "appendfsync", "always")


def watchful(site: Site, *flags: str, **env: str) -> subprocess.Popen[bytes]:
    log = (site.folder / f"worker-{len(site.workers)}.log").open("wb")
    with log:
        process = subprocess.Popen(
            [sys.executable, "-c", OFTEN, "worker", *flags],
            env=site.env | env,
            stdout=log,
            stderr=log,
        )
    site.workers.append(process)
    return process


def test_a_worker_takes_nothing_from_a_server_that_may_forget_and_goes_on_once_it_is_mended(
    site: Site,
) -> None:
    everysec(site)
    id = site.approved("item.readable", "waits")
    site.worker()
    eventually(lambda: "no new work is taken: appendfsync" in site.log(), "it says why")
    assert "started" not in site.log()
    assert site.tally.get(id).state == "approved"
    always(site)
    assert site.at_rest(id) == "committed"
    assert site.log().count("no new work is taken") == 1
    assert "work is taken again" in site.log()


def test_what_runs_finishes_and_nothing_else_begins(site: Site) -> None:
    (site.folder / "slow").touch()
    slow = site.approved("item.slow", "slow")
    worker = watchful(site, "--processes", "2")
    eventually(lambda: site.tally.get(slow).state == "running", "the effect has begun")
    everysec(site)
    eventually(lambda: "no new work is taken" in site.log(), "the guard has seen it")
    eventually(lambda: site.tally.store.snapshot().workers == 1, "the idle work-horse has ended")
    later = site.approved("item.readable", "later")
    (site.folder / "slow").unlink()
    assert site.at_rest(slow) == "committed"
    eventually(lambda: site.tally.store.snapshot().workers == 0, "the busy one has ended too")
    assert site.tally.get(later).attempts == 0
    assert worker.poll() is None
    always(site)
    assert site.at_rest(later) == "committed"
    assert actions.effects("slow") == actions.effects("later") == 1


def test_a_stop_while_the_guard_refuses_lets_what_runs_finish(site: Site) -> None:
    (site.folder / "slow").touch()
    slow = site.approved("item.slow", "slow")
    worker = watchful(site)
    eventually(lambda: site.tally.get(slow).state == "running", "the effect has begun")
    everysec(site)
    eventually(lambda: "no new work is taken" in site.log(), "the guard has seen it")
    worker.terminate()
    eventually(lambda: "stopping" in site.log(), "the stop is heard")
    (site.folder / "slow").unlink()
    assert worker.wait(20) == 0
    assert site.tally.get(slow).state == "committed"


def test_alerts_are_delivered_while_no_work_is_taken(site: Site) -> None:
    everysec(site)
    command(site.server, "RPUSH", site.tally.store.keys.outbox, '{"id": "a", "seq": 1}')
    site.worker()
    eventually(lambda: "ALERT" in site.log(), "it is delivered")
    assert "no new work is taken" in site.log()


def test_a_burst_that_may_take_nothing_ends_and_says_so(site: Site) -> None:
    everysec(site)
    id = site.approved("item.readable", "waits")
    assert site.worker("--burst").wait(20) == 1
    assert "CONFIG SET appendfsync always" in site.log()
    assert site.tally.get(id).state == "approved"


def test_a_waived_refusal_is_logged_and_work_is_taken(site: Site) -> None:
    everysec(site)
    id = site.approved("item.readable", "x")
    watchful(site, TALLYSTICK_ALLOW_UNSAFE="appendfsync")
    assert site.at_rest(id) == "committed"
    assert site.log().count("UNSAFE, waived by TALLYSTICK_ALLOW_UNSAFE: appendfsync") == 1


def test_a_misspelt_waiver_ends_a_worker_at_its_start(site: Site) -> None:
    worker = watchful(site, TALLYSTICK_ALLOW_UNSAFE="apendfsync")
    assert worker.wait(20) == 1
    assert "'apendfsync' is no check that can be waived" in " ".join(site.log().split())


def test_a_worker_that_starts_before_its_server_works_once_that_is_there(site: Site) -> None:
    id = site.approved("item.readable", "x")
    site.server.stop()
    site.worker()
    eventually(lambda: "does not answer" in site.log(), "it waits")
    site.server.start()
    began = time.monotonic()
    assert site.at_rest(id) == "committed"
    assert time.monotonic() - began < 10


def test_a_server_that_comes_back_without_durability_is_given_no_work(site: Site) -> None:
    site.worker()
    eventually(lambda: "started" in site.log(), "a work-horse is up")
    site.server.stop()
    eventually(lambda: "does not answer" in site.log(), "the worker has noticed")
    site.server.options["appendfsync"] = "everysec"
    site.server.start()
    eventually(lambda: "no new work is taken: appendfsync" in site.log(), "the guard looks again")
    eventually(lambda: site.tally.store.snapshot().workers == 0, "the work-horse has ended")
    id = site.approved("item.readable", "waits")
    always(site)
    assert site.at_rest(id) == "committed"
