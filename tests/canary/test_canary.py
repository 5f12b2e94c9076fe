"""The canary survives what any action survives; the drill is found out and undone."""

import os
from pathlib import Path

import pytest

from tallystick import Context, NotApplied, State
from tallystick.canary import Canary, Drill, beat, clear, drill
from tallystick.core.errors import InvalidInput
from tallystick.testing import POINTS, Bench
from tests.driving import crash_if_passed

BEAT = "0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of the beats lie."""
    monkeypatch.setenv("TALLYSTICK_DATA_DIR", str(tmp_path))
    return tmp_path / "canary"


@pytest.fixture
def bench() -> Bench:
    return Bench(Canary, Drill)


def approved(bench: Bench, name: str) -> str:
    return bench.approved(name, {"beat": BEAT}, key="k")


def context(key: str) -> Context:
    return Context("0" * 16, key, 1, 0.0)


@pytest.mark.parametrize("point", [None, *POINTS])
def test_canary_is_committed_wherever_its_worker_dies(
    bench: Bench, folder: Path, point: str | None
) -> None:
    id = approved(bench, "tallystick.canary")
    if point:
        crash_if_passed(bench, id, point)
    assert bench.run(id).state is State.COMMITTED
    assert [path.name for path in folder.iterdir()] == [BEAT]


def test_drill_is_found_out_and_leaves_nothing(bench: Bench, folder: Path) -> None:
    id = approved(bench, "tallystick.drill")
    found = bench.run(id)
    assert found.state is State.ROLLED_BACK
    assert found.verdict
    assert found.verdict["answer"] == "fails"
    assert list(folder.iterdir()) == []


def test_its_target_is_keyed_as_declared(folder: Path) -> None:
    canary, params = Canary(), Canary.Params(beat=BEAT)
    written = canary.execute(params, context("a"))
    assert canary.execute(params, context("a")) == written == canary.observe(params)
    with pytest.raises(NotApplied, match="another key"):
        canary.execute(params, context("b"))
    assert canary.observe(params) == written


def test_files_of_beats_that_are_long_over_are_removed_and_nothing_else(
    bench: Bench, folder: Path
) -> None:
    folder.mkdir()
    for name in ("f" * 16, "0" * 16, "notes.txt"):
        (folder / name).touch()
    for name in ("f" * 16, "notes.txt"):
        os.utime(folder / name, (1, 1))
    bench.run(approved(bench, "tallystick.canary"))
    assert {path.name for path in folder.iterdir()} == {"0" * 16, "notes.txt", BEAT}


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "short", "0123456789abcdeg"])
def test_a_beat_that_is_no_name_of_ours_is_refused(bench: Bench, folder: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"params\.beat"):
        bench.propose("tallystick.canary", {"beat": name})


def test_a_beat_that_nobody_takes_is_withdrawn(bench: Bench, folder: Path) -> None:
    played = beat(bench.tally, timeout=0)
    assert (played.well, played.state) == (False, State.CANCELLED)
    played = drill(bench.tally, timeout=0)
    assert (played.well, played.action) == (False, "tallystick.drill")


def test_only_drills_that_went_well_are_taken_note_of(bench: Bench, folder: Path) -> None:
    bench.run(approved(bench, "tallystick.drill"))
    lost = bench.approved("tallystick.drill", {"beat": "f" * 16}, key="lost")
    bench.crash(lost, "after_effect")
    assert bench.run(lost).state is State.UNKNOWN
    clear(bench.tally)
    assert [found.id for found in bench.tally.list(attention=True)] == [lost]
