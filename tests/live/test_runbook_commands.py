"""What the runbooks tell to type besides our own commands, typed into a running stack."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.stack import Stack, free_port, stack
from tests.metrics.tools import program
from tests.runbooks.pages import PAGES, Step, missing, steps
from tests.server.conftest import eventually

pytestmark = [pytest.mark.server, pytest.mark.live]

EVERY_STEP = {step.command: step for page in PAGES.values() for step in steps(page)}
OTHERS = [step for step in EVERY_STEP.values() if not step.ours]
GOING_ON = [step for step in EVERY_STEP.values() if step.goes_on]

PORTS = {"exporter": 9464, "prometheus": 9090, "alertmanager": 9093}


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.setenv("TARGET_DIR", str(tmp_path))
    with stack(tmp_path, redis_port=free_port()) as started:
        yield started


@pytest.mark.timeout(180)
def test_every_other_command_of_a_runbook_runs_and_prints_what_the_page_shows(
    live: Stack,
) -> None:
    live.approved("item.wrong", "a")
    eventually(lambda: live.receiver.find("TallystickVerificationFailed"), "something fires")
    live.tally.stop(by="fay", reason="so that the operations journal has a line")
    assert len(OTHERS) > 10
    for step in OTHERS:
        program(step.words[0])
        done = subprocess.run(
            ["bash", "-euc", here(live, step)],
            env=live.env,
            cwd=live.folder,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, step.command + done.stdout + done.stderr
        assert missing(step.sample, done.stdout + done.stderr) == [], step.command + done.stdout
    for step in GOING_ON:
        goes_on_until_it_is_stopped(live, step)


def here(live: Stack, step: Step) -> str:
    """The command with the addresses of this stack."""
    command = step.command
    for name, port in PORTS.items():
        command = command.replace(f"127.0.0.1:{port}", f"127.0.0.1:{live.ports[name]}")
    return command


def goes_on_until_it_is_stopped(live: Stack, step: Step) -> None:
    """It starts, says that it serves, and ends by a signal."""
    words = [str(free_port()) if word == "9464" else word for word in step.words[1:]]
    said = {"worker": "work-horse", "exporter": "metrics at"}[words[0]]
    printed = live.folder / f"typed-{words[0]}.log"
    with printed.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tallystick", *words],
            env=live.env | {"PYTHONUNBUFFERED": "1"},
            stdout=log,
            stderr=log,
        )
    try:
        eventually(lambda: said in printed.read_text(), step.command)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in {0, 130}
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(10)
