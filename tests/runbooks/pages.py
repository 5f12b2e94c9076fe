"""Reads the runbooks: their commands, what each is shown to print, and the same without chance."""

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.cli import main
from tallystick.cli.common import console
from tests.docs.pages import DOCS, blocks
from tests.runbooks.scene import Scene

FOLDER = DOCS / "runbooks"
PAGES = {path.stem: path for path in sorted(FOLDER.glob("*.md"))}

WIDTH = 100

SUBJECT = {
    "TallystickVerificationFailed": "rolled_back",
    "TallystickVerificationFailureHealed": "rolled_back",
    "TallystickErrorBudgetBurnFast": "rolled_back",
    "TallystickErrorBudgetBurnSlow": "rolled_back",
    "TallystickRollbackFailed": "rollback_failed",
    "TallystickOutcomeUnknown": "unknown",
    "TallystickStaleWriteRejected": "unknown",
    "TallystickCorruptRecord": "corrupt",
    "TallystickNotApplied": "failed",
    "TallystickApprovalWaitHigh": "waiting_for_approval",
    "TallystickNoWorkers": "running",
    "TallystickOverdue": "running",
    "TallystickWorkHorseKilled": "running",
}
"""The state of the action that a page is about, and that `ID` stands for; else an approved one."""


def _stopped(scene: Scene) -> None:
    scene.tally.stop(by="fay", reason="the bank reports double bookings")


def _went_back(scene: Scene) -> None:
    """What a restore of old counters looks like."""
    keys = scene.tally.store.keys
    scene.redis.hincrby(keys.counters, "moves", -7)
    scene.redis.zrem(keys.index("committed"), scene.ids["committed"])


def _evicts(scene: Scene) -> None:
    scene.redis.config_set("maxmemory-policy", "allkeys-lru")


def _nearly_full(scene: Scene) -> None:
    used: int = scene.redis.info("memory")["used_memory"]
    scene.redis.config_set("maxmemory", int(used / 0.93))


SETUP: dict[str, Callable[[Scene], None]] = {
    "TallystickStopped": _stopped,
    "TallystickCountersWentBack": _went_back,
    "TallystickRedisNotDurable": _evicts,
    "TallystickRedisMemoryHigh": _nearly_full,
}
"""What has happened to the scene of a page besides."""


@contextlib.contextmanager
def scene_of(name: str, url: str, namespace: str, folder: Path) -> Iterator[Scene]:
    """The scene as the page finds it; the server is put in order again afterwards."""
    scene = Scene(url, namespace, folder)
    scene.play()
    if name in SETUP:
        SETUP[name](scene)
    try:
        yield scene
    finally:
        scene.redis.config_set("maxmemory-policy", "noeviction")
        scene.redis.config_set("maxmemory", 0)
        scene.tally.close()


LONG_RUNNING = {"worker", "exporter"}
MAY_FAIL = {"audit", "canary", "doctor"}
"""Commands whose exit status is their finding."""


@dataclass(frozen=True)
class Step:
    """A command of a page, and the lines that it is shown to print (`…` stands for any)."""

    command: str
    sample: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command, comments=True)

    @property
    def ours(self) -> bool:
        return self.words[0] == "tallystick"

    @property
    def goes_on(self) -> bool:
        """Whether it runs until it is stopped."""
        return self.ours and self.words[1] in LONG_RUNNING


def steps(page: Path) -> Iterator[Step]:
    """The commands of a page, in their order."""
    for _, block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *sample = part.rstrip("\n").split("\n")
            yield Step(command, tuple(line for line in sample if line))


def perform(step: Step, name: str, scene: Scene) -> tuple[int, str]:
    """Run one of our commands in this process, on the scene; its exit status and what it prints."""
    named = {
        "ID": scene.ids[SUBJECT.get(name, "approved")],
        "NAME": "bank.transfer",
        "WHO": "fay",
    }
    words = [named.get(word, word) for word in step.words[1:]]
    console.width = WIDTH
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = main(words)
    return status, printed.getvalue()


def shape(line: str) -> str:
    """A line without what chance and time decide: ids, digests, times, numbers, drawn width."""
    line = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z?", "TIME", line)
    line = re.sub(r"sha256:[0-9a-f]+", "DIGEST", line)
    line = re.sub(r"\b[0-9a-f]{16,64}\b|\b[0-9a-f]+(?=…)", "ID", line)
    line = re.sub(r"\d+(\.\d+)?", "N", line)
    line = re.sub(r"[─━]{2,}", "─", line)
    return re.sub(r"\s+", " ", line).strip()


def missing(sample: Sequence[str], printed: str) -> list[str]:
    """The lines of a sample that were not printed, in their order."""
    rest = iter([shape(line) for line in printed.splitlines()])
    lost = []
    for line in sample:
        wanted = shape(line)
        start = wanted.removesuffix("…").rstrip()
        if start and not any(
            found.startswith(start) if "…" in wanted else found == wanted for found in rest
        ):
            lost.append(line)
            break
    return lost
