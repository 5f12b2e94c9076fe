"""Ctrl-C at any moment of a command: one word, status 130, and no traceback."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.conftest import eventually

BLOCKS = """
import pathlib, time
pathlib.Path({mark!r}).touch()
time.sleep(60)
"""

SWALLOWS = """
import pathlib, time
pathlib.Path({mark!r}).touch()
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
"""


def started(folder: Path, module: str, code: str, *words: str) -> subprocess.Popen[str]:
    """A command that meets this module, of this code, where it would import another."""
    (folder / f"{module}.py").write_text(code.format(mark=str(folder / "reached")))
    env = os.environ | {"PYTHONPATH": str(folder), "TALLYSTICK_DATA_DIR": str(folder / "data")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tallystick", *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: (folder / "reached").exists(), f"{module} is being imported")
    return process


@pytest.mark.parametrize("code", [BLOCKS, SWALLOWS], ids=["plain", "swallowed"])
@pytest.mark.parametrize("module", ["pydantic", "typer", "rq", "redis"])
def test_ctrl_c_while_it_loads_ends_it_at_once_and_in_one_word(
    tmp_path: Path, module: str, code: str
) -> None:
    process = started(tmp_path, module, code, "list")
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=20)
    assert (process.returncode, out, said) == (130, "", "interrupted\n")


@pytest.mark.server
def test_ctrl_c_while_an_action_module_loads_says_the_same(tmp_path: Path) -> None:
    process = started(tmp_path, "slow_actions", BLOCKS, "actions", "--actions", "slow_actions")
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=20)
    assert (process.returncode, out, said) == (130, "", "interrupted\n")


def test_a_background_job_whose_shell_ignores_ctrl_c_does_so_too(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = started(tmp_path, "pydantic", BLOCKS, "list")
    finally:
        signal.signal(signal.SIGINT, before)
    [mask] = re.findall(r"SigIgn:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())
    process.kill()
    process.communicate()
    assert int(mask, 16) >> (signal.SIGINT - 1) & 1


def test_the_installed_command_is_the_same_process() -> None:
    from importlib.metadata import entry_points

    [command] = [one for one in entry_points(group="console_scripts") if one.name == "tallystick"]
    assert command.value == "tallystick.__main__:run"
