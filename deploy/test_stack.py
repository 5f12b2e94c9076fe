"""compose.yaml, brought up for real. Run by .ci/compose, which sees to an engine and the images.

What an engine alone can show: that the services start in their order and become healthy, that what
is declared about users and file systems holds inside, that a failure pages, and that nothing is
lost when containers die.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[1]
COMPOSE = [str(ROOT / ".venv/bin/docker-compose"), "--project-name", "tallystick-ci"]
WITHOUT = {name for name in os.environ.get("STACK_WITHOUT", "").split(",") if name}
PORTS = {"PROMETHEUS_PORT": "19090", "ALERTMANAGER_PORT": "19093", "GRAFANA_PORT": "13000"}

ENDS = {"committed", "rolled_back"}

pytestmark = pytest.mark.timeout(240)


def compose(*words: str, status: int | None = 0) -> str:
    """Run one command of Compose; what it wrote to standard output."""
    done = subprocess.run(
        [*COMPOSE, *words],
        cwd=ROOT,
        env=os.environ | PORTS,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if status is not None:
        assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def desk(*words: str) -> Any:
    """A command on the approver's side; its JSON."""
    return json.loads(compose("run", "--rm", "--no-deps", "desk", *words, "--json"))


def inside(service: str, *words: str, status: int | None = 0) -> str:
    return compose("exec", "--no-TTY", service, *words, status=status).strip()


def eventually(condition: Callable[[], Any], what: str, *, seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"within {seconds:g} s never: {what}"
        time.sleep(0.2)
    return found


def firing() -> set[str]:
    """The names of the alerts that Prometheus holds for true now."""
    url = f"http://127.0.0.1:{PORTS['PROMETHEUS_PORT']}/api/v1/alerts"
    told = httpx.get(url, timeout=10).raise_for_status().json()["data"]["alerts"]
    return {one["labels"]["alertname"] for one in told if one["state"] == "firing"}


def services() -> list[str]:
    return sorted(set(compose("config", "--services").split()) - WITHOUT)


@pytest.fixture(scope="module", autouse=True)
def stack() -> Iterator[None]:
    """The whole stack, from nothing; its volumes go with it."""
    compose("--profile", "*", "down", "--volumes", "--remove-orphans")
    try:
        compose("up", "--detach", "--wait", "--no-build", *services())
        yield
    except BaseException:
        print(compose("logs", "--tail", "30", status=None))
        raise
    finally:
        compose("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "5")


def test_every_service_is_healthy_and_the_secrets_were_made_once() -> None:
    told = [json.loads(line) for line in compose("ps", "--all", "--format", "json").splitlines()]
    health = {one["Service"]: one["Health"] for one in told}
    ended = {one["Service"]: one["ExitCode"] for one in told if one["State"] == "exited"}
    assert ended == {"secrets": 0, "rules": 0}
    well = {name for name, one in health.items() if one == "healthy"}
    assert well == set(services()) - set(ended)
    assert "made the approval key" in compose("logs", "secrets")


def test_the_doctor_refuses_nothing_in_the_worker() -> None:
    report = json.loads(inside("worker", "tallystick", "doctor", "--json"))
    bad = {one["name"] for one in report["findings"] if one["severity"] != "ok"}
    assert not report["refuses"]
    assert bad == {"encryption"}  # between containers of one host


@pytest.mark.parametrize("service", ["worker", "exporter", "pager", "redis", "prometheus"])
def test_a_service_is_nobody_special_and_can_write_nowhere_but_where_it_must(service: str) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in inside(service, "cat", "/proc/self/status").splitlines()
        if ":\t" in line
    )
    assert status["Uid"].split()[0] not in {"0", ""}
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"
    mounts = [line.split() for line in inside(service, "cat", "/proc/self/mounts").splitlines()]
    [root] = [mount[3].split(",") for mount in mounts if mount[1] == "/"]
    assert "ro" in root


def test_only_the_approvers_side_sees_the_private_key() -> None:
    listed = inside("worker", "ls", "/secrets/worker", "/secrets")
    assert "trusted.json" in listed
    assert "approval.key" not in listed
    assert inside("worker", "cat", "/secrets/approver/approval.key", status=None) == ""


def test_a_failed_verification_pages_and_ends_when_it_is_acknowledged() -> None:
    told = compose("run", "--rm", "demo")
    assert "committed" in told
    assert "rolled_back" in told
    found = json.loads(told[told.index("{") : told.rindex("}") + 1])
    assert found["status"] == "firing"
    assert found["labels"]["alertname"] == "TallystickVerificationFailed"
    assert found["labels"]["severity"] == "critical"
    assert found["labels"]["action_type"] == "shop.reprice"
    assert found["annotations"].keys() >= {"summary", "description", "runbook", "runbook_url"}
    assert found["annotations"]["dashboard_url"].endswith("/d/tallystick")
    [wrong] = desk("list", "--attention")
    assert desk("show", wrong["id"])["state"] == "rolled_back"
    assert found["labels"]["alertname"] in firing()
    desk("acknowledge", wrong["id"], "--by", "on-call")
    eventually(lambda: found["labels"]["alertname"] not in firing(), "the alert ends")


def test_a_canary_came_through_every_stage_and_a_drill_was_rolled_back() -> None:
    ended = {one["action"]: one["state"] for one in desk("list") if "tallystick." in one["action"]}
    assert ended == {"tallystick.canary": "committed", "tallystick.drill": "rolled_back"}


def test_what_dies_loses_nothing_and_workers_scale() -> None:
    before = {one["id"]: one["state"] for one in desk("list") if one["state"] in ENDS}
    assert before
    compose("kill", "--signal", "KILL", "redis", "worker")
    compose("up", "--detach", "--wait", "--no-build", "--scale", "worker=3", *services())
    after = {one["id"]: one["state"] for one in desk("list")}
    assert after.items() >= before.items()
    assert "committed" in compose("run", "--rm", "--no-deps", "demo")
