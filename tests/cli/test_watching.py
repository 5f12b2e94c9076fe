"""status and top as people use them: exit status, JSON, and a real (pseudo-)terminal."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyte
import pytest

from tests.cli.conftest import Shell
from tests.server import actions
from tests.server.conftest import Server, eventually, server

__all__ = ["server"]

pytestmark = pytest.mark.server

SHOWN_AGAIN, HIDDEN = b"\x1b[?25h", b"\x1b[?25l"
OTHER_SCREEN, OWN_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"


# --- status --------------------------------------------------------------------------------------


def test_a_quiet_store_is_safe_and_the_status_is_0(shell: Shell) -> None:
    found = shell.run("status", "--check")
    assert found.returncode == 0
    assert "SAFE" in found.stdout.decode()


def test_what_needs_a_person_is_named_with_its_command_and_fails_the_check(shell: Shell) -> None:
    actions.arm("kill-horse-before")
    id = shell.propose()["id"]
    shell.json("approve", id, "--by", "approver")
    worked = shell.run("worker", "--burst")
    found = shell.run("status")
    assert found.returncode == 0, worked.stderr
    assert f"tallystick show {id}" in found.stdout.decode()
    assert shell.run("status", "--check").returncode == 1
    told = shell.json("status", "--check", status=1)
    assert (told["safe"], told["halted"], told["unacknowledged"]) == (False, 1, 1)
    assert told["problems"][0]["next"] == f"tallystick show {id}"
    proof = ["--to", "abandoned", "--by", "oncall", "--evidence", "looked"]
    shell.json("resolve", id, *proof)
    assert shell.json("status", "--check")["safe"] is True


def test_the_json_of_status_tells_what_waits_for_whom(shell: Shell) -> None:
    ids = [shell.propose(f"k-{number}")["id"] for number in range(3)]
    told = shell.json("status", "--limit", "2")
    assert told["actions"]["waiting_for_approval"] == 3
    assert [row["id"] for row in told["waiting"]] == ids[:2]
    assert told["waiting"][0]["not_by"] == ["producer"]
    assert told["server"].startswith("unix://")


def test_a_server_that_is_away_is_an_error_of_status_and_of_top(shell: Shell) -> None:
    shell.extra["TALLYSTICK_REDIS_URL"] = "redis://127.0.0.1:1/0"
    for verb in ("status", "top"):
        assert "does not answer" in shell.refused(verb)


# --- top -----------------------------------------------------------------------------------------


def test_without_a_terminal_top_shows_one_frame_and_ends(shell: Shell) -> None:
    id = shell.propose()["id"]
    for words in (["top"], ["top", "--once"]):
        found = shell.run(*words)
        assert found.returncode == 0
        assert id in found.stdout.decode()
        assert b"\x1b" not in found.stdout


@dataclass
class Terminal:
    """A terminal of 80 columns and 24 lines, with a command in it."""

    process: subprocess.Popen[bytes]
    ours: int
    before: list[Any]
    screen: pyte.Screen = field(default_factory=lambda: pyte.Screen(80, 24))
    raw: bytes = b""

    @classmethod
    def start(cls, env: dict[str, str], *words: str) -> "Terminal":
        ours, theirs = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        before = termios.tcgetattr(theirs)
        plain = {name: value for name, value in env.items() if name not in {"COLUMNS", "LINES"}}
        process = subprocess.Popen(
            [sys.executable, "-m", "tallystick", *words],
            env=plain | {"TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        return cls(process, ours, before)

    def text(self) -> str:
        """What is on the screen, after all that has come meanwhile."""
        stream = pyte.ByteStream(self.screen)
        while select.select([self.ours], [], [], 0.05)[0]:
            try:
                came = os.read(self.ours, 65536)
            except OSError:  # the command has ended
                break
            self.raw += came
            stream.feed(came)
        return "\n".join(self.screen.display)

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def ended(self) -> int:
        """Wait for the end; the exit status."""
        eventually(lambda: self.text() and self.process.poll() is not None, "it ends")
        self.text()
        return int(self.process.returncode)

    @property
    def mode(self) -> list[Any]:
        return termios.tcgetattr(self.ours)


@pytest.fixture
def terminal(shell: Shell) -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def start(*words: str) -> Terminal:
        env = os.environ | {"TALLYSTICK_DATA_DIR": str(shell.folder)} | shell.extra
        started.append(Terminal.start(env, *words))
        return started[-1]

    yield start
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            one.process.kill()
        one.process.wait()
        os.close(one.ours)


def keys_of(mode: list[Any]) -> tuple[int, int]:
    """Whether what is typed is shown, and comes line by line."""
    return mode[3] & termios.ECHO, mode[3] & termios.ICANON


@pytest.mark.parametrize("way", ["q", "ctrl-c", "sigterm"])
def test_top_ends_at_once_and_leaves_the_terminal_as_it_was(
    shell: Shell, terminal: Callable[..., Terminal], way: str
) -> None:
    id = shell.propose()["id"]
    top = terminal("top", "--interval", "3600")
    eventually(lambda: id in top.text(), "the action is on the screen")
    eventually(lambda: keys_of(top.mode) == (0, 0), "keys are heard one by one")
    if way == "sigterm":
        top.process.send_signal(signal.SIGTERM)
    else:
        top.press(b"q" if way == "q" else b"\x03")
    assert top.ended() == (143 if way == "sigterm" else 0)
    assert keys_of(top.mode) == keys_of(top.before)
    assert top.raw.count(OTHER_SCREEN) == top.raw.count(OWN_SCREEN) == 1
    assert top.raw.rindex(SHOWN_AGAIN) > top.raw.rindex(HIDDEN)
    assert b"Traceback" not in top.raw


def test_other_keys_and_ctrl_z_do_nothing(shell: Shell, terminal: Callable[..., Terminal]) -> None:
    top = terminal("top", "--interval", "0.2")
    eventually(lambda: "SAFE" in top.text() and keys_of(top.mode) == (0, 0), "it is up")
    top.press(b"x\x1a\x1b[A\r ")
    id = shell.propose()["id"]
    eventually(lambda: id in top.text(), "it goes on")
    top.press(b"xyzq")
    assert top.ended() == 0


def test_top_shows_what_happens_meanwhile_in_80_columns_and_24_lines(
    shell: Shell, terminal: Callable[..., Terminal]
) -> None:
    top = terminal("top", "--interval", "0.2")
    eventually(lambda: "SAFE" in top.text(), "it is up")
    ids = [shell.propose(f"k-{number}")["id"] for number in range(3)]
    eventually(lambda: "waiting (3)" in top.text(), "three wait")
    assert all(id in top.text() for id in ids)
    shell.json("approve", ids[0], "--by", "approver")
    eventually(lambda: "no worker lives" in top.text(), "nobody does it")
    shell.run("worker", "--burst")
    eventually(lambda: "SAFE" in top.text() and "committed 1" in top.text(), "it is done")
    assert ids[0] not in top.text()


def test_top_tells_that_its_server_is_away_and_goes_on_when_it_is_back(
    shell: Shell, terminal: Callable[..., Terminal], server: Server
) -> None:
    shell.extra["TALLYSTICK_REDIS_URL"] = server.url
    id = shell.propose()["id"]
    top = terminal("top", "--interval", "0.2")
    eventually(lambda: id in top.text(), "it is up")
    server.stop()
    eventually(lambda: "not seen anew" in top.text(), "it is told")
    assert id in top.text()
    server.start()
    eventually(lambda: "q quits" in top.text(), "it is seen anew")
    top.press(b"q")
    assert top.ended() == 0


def test_top_ends_when_its_terminal_goes_away(
    shell: Shell, terminal: Callable[..., Terminal]
) -> None:
    top = terminal("top", "--interval", "3600")
    eventually(lambda: "SAFE" in top.text(), "it is up")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), top.ours)  # its last user, our side, is gone
    top.process.wait(20)
    assert b"Traceback" not in top.raw
