"""audit, canary and exporter as people use them: real processes, real workers."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tallystick import Tallystick
from tallystick.canary import MODULE
from tallystick.jobs.states import OPEN
from tests.server.conftest import Server, Site, eventually

pytestmark = pytest.mark.server


def command(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tallystick", *words],
        env=site.env | {"COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextmanager
def running(site: Site, *words: str, **env: str) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A command that goes on, and the file that it prints into."""
    printed = site.folder / f"{words[0]}.out"
    with printed.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tallystick", *words],
            env=site.env | {"PYTHONUNBUFFERED": "1", "COLUMNS": "120"} | env,
            stdout=file,
            stderr=file,
        )
    try:
        yield printed, process
    finally:
        process.kill()
        process.wait(10)


def says(printed: Path, words: str) -> Callable[[], bool]:
    return lambda: words in printed.read_text()


# --- audit ---------------------------------------------------------------------------------------


def test_audit_of_an_untouched_store_finds_nothing(site: Site) -> None:
    site.worker()
    assert site.at_rest(site.approved("item.wrong", "a")) == "rolled_back"
    done = command(site, "audit")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("no difference in 1 actions with ")


def test_audit_shows_each_difference_and_fails(site: Site) -> None:
    id = site.approved("item.readable", "a")
    keys, redis = site.tally.store.keys, site.tally.store._client
    redis.hincrby(keys.counters, "transitions|item.readable|approved", 2)
    redis.zrem(keys.due, id)
    done = command(site, "audit")
    assert done.returncode == 1
    assert "2 differences in 1 actions" in done.stdout
    assert "counter transitions|item.readable|approved" in done.stdout
    told = json.loads(command(site, "audit", "--json").stdout)
    assert told["actions"] == 1
    assert {one["where"]: (one["stored"], one["recounted"]) for one in told["differences"]} == {
        f"action {id}: due": ("never", "somebody must look again"),
        "counter transitions|item.readable|approved": ("3", "1"),
    }


def test_audit_while_workers_work_finds_nothing(site: Site) -> None:
    """What is written meanwhile is neither missed nor counted twice."""
    site.worker("--processes", "2")
    kinds = ("item.keyed", "item.wrong")
    ids = [site.approved(kind, f"{kind}-{number}") for number in range(8) for kind in kinds]
    audits = 0
    while audits < 3 or any(site.tally.get(id).state in OPEN for id in ids):
        told = json.loads(command(site, "audit", "--json").stdout)
        assert told["differences"] == []
        audits += 1
    assert json.loads(command(site, "audit", "--json").stdout)["actions"] == len(ids)


# --- canary --------------------------------------------------------------------------------------


@pytest.fixture
def canary_site(site: Site) -> Site:
    """A site whose workers know the canary."""
    site.settings = site.settings.model_copy(update={"actions": (MODULE,)})
    return site


def age(site: Site, name: str) -> float | None:
    """When the canary or the drill last ended well, as the store remembers it."""
    mark = site.tally.store.snapshot().marks.get(name)
    return mark.at if mark else None


def test_canary_goes_through_every_stage_and_its_age_is_kept(canary_site: Site) -> None:
    canary_site.worker()
    done = command(canary_site, "canary", "--timeout", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    id = done.stdout.split()[1]
    assert done.stdout.startswith(f"canary {id} committed in ")
    events = canary_site.events(id)
    assert events == ["proposed", "vote", "claimed", "intent", "replied", "verified"]
    record = canary_site.tally.store.load(id)
    assert age(canary_site, "transitions|tallystick.canary|committed") == record.at / 1000
    assert canary_site.tally.list(attention=True) == []


def test_drill_lands_wrong_is_rolled_back_and_leaves_no_open_call(canary_site: Site) -> None:
    canary_site.worker()
    done = command(canary_site, "canary", "--drill", "--timeout", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    drill = done.stdout.splitlines()[1]
    assert drill.startswith("drill ")
    assert " rolled_back in " in drill
    id = drill.split()[1]
    assert canary_site.events(id)[-4:] == ["undo", "undone", "restored", "acknowledged"]
    assert age(canary_site, "transitions|tallystick.drill|rolled_back")
    assert canary_site.tally.list(attention=True) == []
    committed = canary_site.tally.get(done.stdout.split()[1])
    left = [path.name for path in (canary_site.folder / "data" / "canary").iterdir()]
    assert left == [committed.params["beat"]]


def test_canary_that_no_worker_takes_is_withdrawn_and_said_to_have_failed(site: Site) -> None:
    done = command(site, "canary", "--timeout", "0.2")
    assert done.returncode == 1
    assert "is cancelled in " in done.stdout
    assert "is there a worker that knows tallystick.canary" in done.stdout
    [found] = site.tally.list()
    assert (found.action, found.state) == ("tallystick.canary", "cancelled")
    snapshot = site.tally.store.snapshot()
    assert snapshot.counters["transitions|tallystick.canary|waiting_for_approval"] == 1
    assert snapshot.marks == {}


def test_canary_on_a_schedule_goes_on_after_a_failure_and_a_server_that_is_away(
    canary_site: Site, server: Server
) -> None:
    with running(canary_site, "canary", "--every", "1", "--timeout", "0.3") as (printed, _):
        eventually(says(printed, "is cancelled"), "a canary that nobody takes")
        server.stop()
        eventually(says(printed, "error: "), "the store is away")
        server.start()
        canary_site.worker()
        eventually(says(printed, " committed in "), "a canary comes through")


def test_a_drill_whose_player_died_is_taken_note_of_by_the_next(canary_site: Site) -> None:
    canary_site.worker()
    with Tallystick.from_settings(canary_site.settings, actions=[MODULE]) as tally:
        left = tally.propose("tallystick.drill", {"beat": "0" * 16}, key="left", by="canary")
        tally.approve(left.id, by="canary-approver")
        assert tally.wait(left.id, timeout=20).state == "rolled_back"
        assert [found.id for found in tally.list(attention=True)] == [left.id]
        assert command(canary_site, "canary", "--drill", "--timeout", "30").returncode == 0
        assert tally.list(attention=True) == []


# --- exporter ------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_exporter_says_at_once_that_it_cannot_reach_redis_and_goes_on(site: Site) -> None:
    url = f"redis://:secret@127.0.0.1:{free_port()}/0"
    with running(site, "exporter", "--port", "0", TALLYSTICK_REDIS_URL=url) as (printed, process):
        eventually(says(printed, "tallystick_redis_up is 0"), "the warning")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert "secret" not in printed.read_text()
    assert "Traceback" not in printed.read_text()


def test_exporter_of_a_store_that_answers_has_nothing_to_warn_of(site: Site) -> None:
    with running(site, "exporter", "--port", "0") as (printed, _):
        eventually(says(printed, "metrics at http://127.0.0.1:"), "it serves")
        assert "redis_up" not in printed.read_text()
