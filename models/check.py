"""Check every variant of the models exhaustively, and compare with what must come out.

    python -m models.check [--fast] [--only WORD] [--jobs N] [--markdown]

Needs spin and gcc (`apt-get install spin gcc`). Exits with 1 on any difference, and if a search was
not exhaustive.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ADVICE = "The models need spin and gcc: apt-get install spin gcc"

_COMPILE = ("gcc", "-DSAFETY", "-DMEMLIM=3000", "-w", "-o", "pan", "pan.c")
_SEARCH = ("./pan", "-m100000", "-w24")
_SECONDS = 600
"""More than any variant needs on a slow machine; beyond it the search counts as not exhaustive."""


class CheckError(Exception):
    """A tool is missing, or a model cannot be translated; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One set of switches, and what must come out: "holds", or the name of a broken promise."""

    name: str
    model: str
    flags: tuple[str, ...]
    expected: str
    reaches: str
    fast: bool

    @property
    def wanted(self) -> str:
        """In words."""
        if self.reaches:
            return f"reaches {self.reaches.lower()}"
        return self.expected if self.expected == "holds" else f"breaks {self.expected}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What Spin found. `found` is "holds", the name of a broken promise, or what went wrong."""

    variant: Variant
    found: str
    states: int
    depth: int
    seconds: float

    @property
    def good(self) -> bool:
        """Whether it is what must come out."""
        return self.found == self.variant.expected


def variants() -> list[Variant]:
    """All of `variants.toml`, in its order."""
    listed = tomllib.loads((HERE / "variants.toml").read_text())["variant"]
    return [_variant(**entry) for entry in listed]


def _variant(
    name: str,
    model: str,
    flags: list[str],
    holds: bool = False,
    breaks: str = "",
    reaches: str = "",
    fast: bool = False,
) -> Variant:
    given = [*flags, f"REACHED={reaches}"] if reaches else flags
    expected = "holds" if holds else breaks or "never_reached"
    return Variant(name, model, tuple(given), expected, reaches, fast)


def need_tools() -> None:
    """Raise `CheckError` with advice unless the tools are there."""
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        raise CheckError(f"{' and '.join(missing)} not found. {ADVICE}")


def check(variant: Variant) -> Outcome:
    """Translate, compile and search one variant, in a folder of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tallystick-model-") as name:
        folder = Path(name)
        for source in HERE.glob("*.pml"):
            shutil.copy(source, folder)
        flags = [f"-D{flag}" for flag in variant.flags]
        _run(folder, "spin", *flags, "-a", f"{variant.model}.pml")
        long = variant.expected == "holds"  # what is broken is found sooner than compiled well
        _run(folder, *_COMPILE, "-O2" if long else "-O0")
        try:
            told = _run(folder, *_SEARCH, seconds=_SECONDS)
        except subprocess.TimeoutExpired:
            told = ""
    seconds = time.monotonic() - began
    return Outcome(variant, found(told), *_sizes(told), seconds)


def _run(folder: Path, *command: str, seconds: float | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
    )
    told = done.stdout + done.stderr
    if done.returncode or re.search(r"^spin: .*Error", told, re.M):
        raise CheckError(f"{' '.join(command)} failed:\n{told[-2000:]}")
    return told


def found(told: str) -> str:
    """What a search has found, by what it printed."""
    if broken := re.search(r"^pan:\d+: assertion violated .*\|\|(\w+)\)", told, re.M):
        return broken[1]
    if re.search(r"^pan:\d+: invalid end state", told, re.M):
        return "nothing_left_behind"
    complete = not re.search(r"not completed|depth too small|MEMLIM|out of memory", told)
    if complete and re.search(r"errors: 0$", told, re.M) and "+ Partial Order" in told:
        return "holds"
    return "not exhaustive"


def _sizes(told: str) -> tuple[int, int]:
    states = re.search(r"^ *([\d.e+]+) states, stored", told, re.M)
    depth = re.search(r"depth reached (\d+)", told)
    return int(float(states[1])) if states else 0, int(depth[1]) if depth else 0


def check_all(wanted: Sequence[Variant], jobs: int) -> Iterator[Outcome]:
    """Check several at a time; the outcomes come in the order of `wanted`."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(check, wanted)


def as_text(outcome: Outcome) -> str:
    """One line of the table."""
    mark = "ok" if outcome.good else f"WRONG: {outcome.found}"
    return (
        f"{outcome.variant.name:<72} {outcome.variant.wanted:<34}"
        f"{outcome.states:>11,} states {outcome.seconds:>6.1f} s  {mark}"
    )


def as_markdown(outcome: Outcome) -> str:
    """One row of the table in docs/concepts/models.md."""
    wanted = outcome.variant.wanted.replace("_", " ")
    return f"| {outcome.variant.name} | {wanted} | {outcome.states:,} |"


def main(given: Sequence[str] | None = None) -> int:
    """Check what is asked for, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m models.check", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="only the variants marked fast")
    parser.add_argument("--only", default="", metavar="WORD", help="only names that contain WORD")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time")
    parser.add_argument("--markdown", action="store_true", help="print rows for the docs")
    options = parser.parse_args(given)
    began = time.monotonic()
    wanted = [
        one for one in variants() if options.only in one.name and (one.fast or not options.fast)
    ]
    show = as_markdown if options.markdown else as_text
    try:
        need_tools()
        wrong = 0
        for outcome in check_all(wanted, options.jobs):
            print(show(outcome), flush=True)
            wrong += not outcome.good
    except CheckError as problem:
        print(problem, file=sys.stderr)
        return 1
    took = time.monotonic() - began
    print(f"\n{len(wanted)} variants, {wrong} wrong, {took:.0f} s", file=sys.stderr)
    return 1 if wrong or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
