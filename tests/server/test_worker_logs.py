"""What real workers log: one line per move, nothing secret, and no storm when Redis is away."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tallystick.jobs.connection import connect
from tallystick.jobs.service import Tallystick
from tests.server import actions
from tests.server.conftest import ACTIONS, Site, eventually
from tests.server.talking_actions import SECRET

pytestmark = pytest.mark.server

TALKING = (ACTIONS, "tests.server.talking_actions")


@pytest.fixture
def site(site: Site) -> Site:
    """A site that knows the talking types as well."""
    site.tally.close()
    site.tally = Tallystick.from_settings(site.settings, actions=TALKING)
    return site


def worker(site: Site, *flags: str, **settings: str) -> subprocess.Popen[bytes]:
    """Start a worker with these settings; it logs where `site.log()` looks."""
    given = {f"TALLYSTICK_{name.upper()}": value for name, value in settings.items()}
    env = site.env | {"TALLYSTICK_ACTIONS": ",".join(TALKING)} | given
    with (site.folder / f"worker-{len(site.workers)}.log").open("wb") as log:
        command = [sys.executable, "-m", "tallystick", "worker", *flags]
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    site.workers.append(process)
    return process


def lines(site: Site) -> list[dict[str, Any]]:
    """The worker's whole lines: each is one JSON object."""
    whole = site.log().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def moves(site: Site, id: str) -> list[dict[str, Any]]:
    return [
        line
        for line in lines(site)
        if line["logger"] == "tallystick.moves" and line["action_id"] == id
    ]


def test_every_move_of_a_worker_is_one_line_of_json(site: Site) -> None:
    worker(site, "--processes", "2")
    ids = [site.approved("item.readable", f"item-{number}") for number in range(6)]
    assert {site.at_rest(id) for id in ids} == {"committed"}
    eventually(lambda: [len(moves(site, id)) for id in ids] == [3] * 6, "all are told")
    for id in ids:
        told = moves(site, id)
        assert [line["state"] for line in told] == ["running", "verifying", "committed"]
        [horse] = {line["worker"] for line in told}
        assert horse == next(line.worker for line in site.tally.history(id) if line.worker)
        assert {line["attempt"] for line in told} == {1}


def test_a_killed_work_horse_is_told_with_what_it_held_and_another_goes_on(site: Site) -> None:
    actions.arm("kill-horse-after")
    worker(site)
    id = site.approved("item.readable", "killed")
    assert site.at_rest(id) == "committed"
    told = eventually(lambda: len(moves(site, id)) == 2 and moves(site, id), "both are told")
    assert [line["state"] for line in told] == ["running", "committed"]
    assert len({line["worker"] for line in told}) == 2
    [death] = [line for line in lines(site) if line.get("reason") == "signal"]
    assert (death["action_id"], death["level"]) == (id, "warning")
    assert death["worker"] == told[0]["worker"]


def test_what_an_action_logs_itself_names_the_action_too(site: Site) -> None:
    worker(site)
    id = site.approved("item.talks", "spoken")
    assert site.at_rest(id) == "committed"
    [line] = [line for line in lines(site) if line["logger"] == "tests.server.talking_actions"]
    assert (line["event"], line["action_id"]) == ("setting spoken", id)
    assert line["worker"] == moves(site, id)[0]["worker"]


@pytest.mark.parametrize("format", ["json", "console"])
def test_no_secret_reaches_the_log_by_any_way(site: Site, format: str) -> None:
    """Not from parameters, from what a target raises, nor from the URL of a server that is away."""
    client = connect(site.server.url, timeout=5, retries=False, decode=True)
    rights = ("on", f">{SECRET}", "allkeys", "allchannels", "+@all")
    client.execute_command("ACL", "SETUSER", "app", *rights)  # type: ignore[no-untyped-call]
    client.close()
    url = site.server.url.replace("unix://", f"unix://app:{SECRET}@")
    worker(site, redis_url=url, log_level="debug", log_format=format)
    broken = site.approved("item.raises", "raise", value=SECRET)
    assert site.at_rest(broken) == "unknown"
    assert site.at_rest(site.approved("item.readable", "fine", value=SECRET)) == "committed"
    assert site.at_rest(site.approved("item.wrong", "wrong", value=SECRET)) == "rolled_back"
    eventually(lambda: "ALERT verification_failed" in site.log(), "the last alert is delivered")
    kept = json.dumps([line.evidence for line in site.tally.history(broken)])
    site.server.stop()
    eventually(lambda: "does not answer" in site.log(), "the worker misses its server")
    for word in ("the effect raised", "RuntimeError", "Raises.execute"):
        assert word in site.log()
    assert SECRET in kept, "it was planted, and is shown to who may look at the journal"
    assert SECRET not in site.log()


def test_a_server_that_goes_away_is_told_once_and_so_is_its_return(site: Site) -> None:
    worker(site, "--processes", "8")
    eventually(lambda: site.log().count("started") == 8, "all are up", seconds=60)
    site.server.stop()
    time.sleep(8)  # so long it is away: some forty turns of the parent, three tries of each child
    assert len([line for line in lines(site) if "does not answer" in line["event"]]) == 1
    assert len([line for line in lines(site) if line["level"] != "info"]) <= 4, site.log()
    site.server.start()
    eventually(lambda: "answers again" in site.log(), "its return is told", seconds=60)
    assert site.at_rest(site.approved("item.readable", "after"), seconds=60) == "committed"
    assert site.log().count("answers again") == 1


def test_a_terminal_gets_words_and_nothing_twice(site: Site) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tallystick", "worker"]
    process = subprocess.Popen(command, env=site.env, stderr=theirs)
    os.close(theirs)
    site.workers.append(process)
    id = site.approved("item.readable", "shown")
    assert site.at_rest(id) == "committed"
    process.send_signal(signal.SIGTERM)
    said = b""
    while True:
        try:
            said += os.read(ours, 65536)
        except OSError:  # so a terminal says that nobody writes to it any more
            break
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;]*m", "", said.decode())
    [line] = [line for line in text.splitlines() if "approved -> running" in line]
    assert line.count(id) == 1
    assert "action_type=item.readable" in line
    assert not line.startswith("{")


def test_less_is_logged_where_less_is_wanted(site: Site) -> None:
    actions.arm("kill-horse-before")
    worker(site, log_level="WARNING")
    assert site.at_rest(site.approved("item.readable", "quiet")) == "unknown"
    eventually(lambda: "ALERT" in site.log(), "the alert is delivered")
    assert {line["level"] for line in lines(site)} == {"warning", "error"}


def test_a_level_that_does_not_exist_is_refused(site: Site) -> None:
    assert worker(site, log_level="loud").wait(20) == 1
    assert "TALLYSTICK_LOG_LEVEL" in site.log()
