"""The demo ends each story as it tells, notices when it does not, and leaves nothing behind."""

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console

from tallystick import ActionRecord
from tallystick.core.errors import InvalidInput
from tallystick.demo import STORIES, run, stories
from tallystick.demo.scene import Scene
from tallystick.demo.stage import LEASE_SECONDS
from tallystick.demo.stories import clean

pytestmark = pytest.mark.server


def played(*, story: str | None = None, naive: bool = False) -> tuple[int, str]:
    """Exit status and text of a demo that is played in this process."""
    text = io.StringIO()
    status = run(story=story, naive=naive, console=Console(file=text, width=80))
    return status, text.getvalue()


# --- the stories ---------------------------------------------------------------------------------


def test_it_tells_every_ending_that_is_promised() -> None:
    assert STORIES == (
        "clean",
        "reject",
        "killed-after-effect",
        "killed-before-effect",
        "stale",
        "compensate",
        "in-band",
        "rollback-fails",
        "blind",
        "same-key",
        "key-conflict",
        "restart",
    )


@pytest.mark.parametrize("story", STORIES)
def test_each_story_ends_as_expected_when_played_alone(story: str) -> None:
    status, text = played(story=story)
    assert (status, "✗" in text) == (0, False), text
    assert re.search(rf"^{story} .*✓", text, re.MULTILINE), text
    if story.startswith("killed"):
        times = re.findall(r"^killed-\S+ +([\d.]+) ", text, re.MULTILINE)
        whole_worker, work_horse = (float(seconds) for seconds in times)
        assert 0 < work_horse < 2, text
        assert 0 < whole_worker < LEASE_SECONDS + 2, text


def test_the_naive_order_doubles_what_ours_does_once() -> None:
    status, text = played(naive=True)
    assert status == 0, text
    for target, state in (("bank", "committed"), ("payments", "committed"), ("mail", "unknown")):
        assert re.search(rf"^{target} .*finished +2 +{state} +1 +✓", text, re.MULTILINE), text


# --- the checks can fail -------------------------------------------------------------------------


def meddle(monkeypatch: pytest.MonkeyPatch, story: Callable[[Scene], None]) -> tuple[int, str]:
    """What the demo says of a story that goes another way."""
    monkeypatch.setitem(stories.BY_NAME, "clean", story)
    return played(story="clean")


def book_behind_its_back(play: Scene) -> None:
    play.targets.bank.transfer("alice", "bob", Decimal("1.00"), order="somebody else's")


def test_a_second_effect_at_a_target_is_counted_and_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def doubled(play: Scene) -> None:
        settled = play.settled

        def settled_and_meddled_with(id: str) -> ActionRecord:
            found = settled(id)
            book_behind_its_back(play)
            return found

        monkeypatch.setattr(play, "settled", settled_and_meddled_with)
        clean(play)

    status, text = meddle(monkeypatch, doubled)
    assert status == 1
    assert re.search(r"^clean +committed +2 transfers +1 transfer +✗", text, re.MULTILINE), text
    assert "✗ clean: the bank shows alice 60.00, bob 40.00" in text


def test_an_effect_that_comes_after_the_count_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(play: Scene) -> None:
        clean(play)
        book_behind_its_back(play)

    status, text = meddle(monkeypatch, late)
    assert status == 1
    assert re.search(r"^clean .*✓", text, re.MULTILINE), text
    assert re.search(r"^counted again +2 transfers +1 transfer +✗", text, re.MULTILINE), text


def test_another_state_than_expected_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_bank(play: Scene) -> None:
        play.arm("bank-takes-a-fee", "2.00")
        clean(play)

    status, text = meddle(monkeypatch, broken_bank)
    assert status == 1
    assert re.search(r"^clean +rolled_back .*committed +✗", text, re.MULTILINE), text


def test_a_story_that_breaks_off_fails_the_demo_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def torn(play: Scene) -> None:
        raise LookupError("the script is lost")

    status, text = meddle(monkeypatch, torn)
    assert status == 1
    assert "LookupError: the script is lost" in text
    assert re.search(r"^clean +broke off .*✗", text, re.MULTILINE), text


@pytest.mark.parametrize("naive", [False, True])
def test_a_story_that_does_not_exist_is_refused(naive: bool) -> None:
    with pytest.raises(InvalidInput, match="killed-after-effect"):
        played(story="nonsense", naive=naive)


# --- the user's own ------------------------------------------------------------------------------


def test_the_users_settings_are_neither_used_nor_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {
        "TALLYSTICK_REDIS_URL": "redis://127.0.0.1:1/0",
        "TALLYSTICK_DATA_DIR": str(tmp_path),
        "TALLYSTICK_KEY_DIR": str(tmp_path / "keys"),
        "TALLYSTICK_LEASE_SECONDS": "nonsense",
    }
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    assert played(story="clean")[0] == 0
    assert {name: os.environ[name] for name in theirs} == theirs
    assert list(tmp_path.iterdir()) == []


# --- nothing is left -----------------------------------------------------------------------------


@dataclass
class Show:
    """A demo in a process of its own, with a temporary folder of its own."""

    folder: Path
    process: subprocess.Popen[str]
    mark: str

    def left(self) -> list[str]:
        """The processes that it started and that still run, by a mark in their environment (a
        server overwrites that with its title, which names the folder)."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                environment = (entry / "environ").read_bytes()
                if self.mark.encode() in environment or str(self.folder).encode() in command:
                    found.append(command.decode())
        return found


@pytest.fixture
def show() -> Iterator[Callable[..., Show]]:
    shows: list[Show] = []
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:  # a socket's path is short

        def start(*options: str) -> Show:
            mark = f"TALLYSTICK_TEST_{uuid.uuid4().hex}"
            process = subprocess.Popen(
                [sys.executable, "-m", "tallystick", "demo", *options],
                env=os.environ | {"TMPDIR": folder, "DEMO_MARK": mark},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            shows.append(Show(Path(folder), process, mark))
            return shows[-1]

        yield start
        for one in shows:
            with suppress(ProcessLookupError):
                os.killpg(one.process.pid, signal.SIGKILL)
            one.process.communicate()


proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")


@proc
def test_the_whole_demo_succeeds_and_leaves_no_process_and_no_file(
    show: Callable[..., Show],
) -> None:
    one = show()
    began = time.monotonic()
    text, _ = one.process.communicate(timeout=100)
    assert one.process.returncode == 0, text
    for story in (*STORIES, "counted again"):
        assert re.search(rf"^{story} .*✓", text, re.MULTILINE), text
    assert time.monotonic() - began < 60
    assert (one.left(), list(one.folder.iterdir())) == ([], [])


@proc
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("options", [["--story", "killed-after-effect"], ["--naive"]])
def test_an_interrupted_demo_leaves_no_process_and_no_file(
    show: Callable[..., Show], options: list[str], number: int, status: int
) -> None:
    one = show(*options)
    assert one.process.stdout is not None
    for line in one.process.stdout:
        if "·" in line:
            break
    assert one.left()
    one.process.send_signal(number)
    text, _ = one.process.communicate(timeout=30)
    assert one.process.returncode == status, text
    assert (one.left(), list(one.folder.iterdir())) == ([], [])
