"""The one screen: it fits its terminal, says first what is wrong, and lets nobody write on it."""

import io
import re
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from tallystick.cli import screen as drawing
from tallystick.cli.screen import screen
from tallystick.jobs.overview import Calling, Overview, Problem, Stop, UnderWay, Waiting
from tallystick.jobs.states import State

AT = "2031-07-04T20:00:00.000Z"
LONG = "payments.wire-out.international.swift.of-the-whole-wide-world-and-all-beyond-it"
WIDE = "陳大文・🏦🏦🏦・陳大文・陳大文・陳大文・陳大文"
EVIL = "\x1b[2J\u202e[bold]x[/] [/red]\n"


def overview(**given: Any) -> Overview:
    """A store in which nothing happens, but for what is given."""
    plain: dict[str, Any] = {
        "at": AT,
        "server": "redis://db:6379/0",
        "namespace": "tallystick",
        "problems": (),
        "actions": dict.fromkeys(map(str, State), 0) | given.pop("actions", {}),
        "oldest": {},
        "halted": 0,
        "unacknowledged": 0,
        "calling": (),
        "waiting": (),
        "under_way": (),
        "workers": 2,
        "worker_names": ("host:1", "host:2"),
        "stops": (),
        "last_hour": {},
        "entered": {},
        "overdue": 0,
        "oldest_due": None,
        "queue_depth": 0,
        "undelivered_alerts": 0,
    }
    return Overview(**plain | given)


def full(rows: int, name: str = "bank.transfer", who: str = "erin") -> Overview:
    """So many actions of each kind."""
    ids = [f"{number:016x}" for number in range(rows)]
    return overview(
        problems=(
            Problem(name="needs_a_person", what=f"{rows} actions halted", next="tallystick list"),
            Problem(name="overdue", what="1 action overdue", next="tallystick doctor"),
        ),
        actions={"unknown": rows, "running": rows, "waiting_for_approval": rows},
        halted=rows,
        unacknowledged=rows,
        calling=[
            Calling(
                id=id,
                action=name,
                state="rollback_failed",
                reason="rollback_failed",
                acknowledged=False,
                since="2031-07-02T16:00:00.000Z",
                next=f"tallystick show {id}",
            )
            for id in ids
        ],
        waiting=[
            Waiting(
                id=id,
                action=name,
                proposed_by=who,
                quorum=2,
                missing=1,
                not_by=(who, "dana"),
                since=AT,
                expires_at="2031-07-04T23:05:00.000Z",
            )
            for id in ids
        ],
        under_way=[
            UnderWay(
                id=id,
                action=name,
                state="rolling_back",
                since="2031-07-04T19:59:18.000Z",
                worker=who,
                attempts=1,
                lease_seconds=12.4,
            )
            for id in ids
        ],
        stops=(Stop(scope=name, who=who, since=AT, why=f"because of {who}"),),
        last_hour=dict.fromkeys(map(str, State), rows),
        overdue=1,
        undelivered_alerts=rows,
        queue_depth=rows,
        oldest_due="2031-07-04T19:59:00.000Z",
    )


def drawn(found: Overview, width: int = 80, **given: Any) -> list[str]:
    """The lines of the screen, as a terminal of this width shows them."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=100, color_system=None)
    console.print(screen(found, width=width, **given))
    return out.getvalue().rstrip("\n").split("\n")


def test_a_quiet_store_is_safe_at_a_glance() -> None:
    lines = drawn(overview())
    assert lines[1] == "SAFE nothing needs a person, nothing is stuck"
    assert len(lines) == 5


def test_what_is_wrong_comes_before_everything_else_with_its_command() -> None:
    lines = drawn(full(3))
    assert lines[1].split("  ")[:2] == ["3 actions halted", "tallystick list"]
    assert lines[2].split("  ")[:2] == ["1 action overdue", "tallystick doctor"]
    assert not any("SAFE" in line for line in lines)


def test_a_stop_is_told_even_where_all_is_safe() -> None:
    stop = Stop(scope="*", who="dana", since="2031-07-04T19:30:00.000Z", why="bank is down")
    lines = drawn(overview(stops=(stop,)))
    assert lines[1].endswith("new actions are stopped")
    assert lines[2] == "stopped everything by dana 30m ago: bank is down"


def test_each_action_that_calls_stands_behind_the_command_to_run() -> None:
    [line] = [line for line in drawn(full(1)) if line.startswith("tallystick show")]
    assert line.split()[:3] == ["tallystick", "show", "0" * 16]
    assert line.split()[3:] == ["bank.transfer", "rollback_failed", "2d04h"]


def test_who_may_still_vote_and_until_when() -> None:
    lines = drawn(full(1))
    row = lines[next(at for at, line in enumerate(lines) if line.startswith("waiting (1)")) + 1]
    assert re.split(" {2,}", row.strip())[-2:] == ["1 vote of 2, not erin, dana", "3h05m"]


def test_what_runs_for_how_long_where_and_with_what_lease() -> None:
    lines = drawn(full(1))
    row = lines[next(at for at, line in enumerate(lines) if line.startswith("under way (1)")) + 1]
    assert row.split() == ["0" * 16, "bank.transfer", "rolling_back", "42s", "12s", "erin"]


@pytest.mark.parametrize("rows", [0, 1, 5, 30])
@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize(
    "name", ["bank.transfer", LONG, EVIL, WIDE], ids=["plain", "long", "evil", "wide"]
)
def test_no_line_is_wider_than_the_terminal(rows: int, width: int, name: str) -> None:
    lines = drawn(full(rows, name, name), width)
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= 20 + 3 * rows


@pytest.mark.parametrize("rows", [0, 1, 5, 30])
@pytest.mark.parametrize("height", [10, 24, 50])
@pytest.mark.parametrize(
    "name", ["bank.transfer", LONG, EVIL, WIDE], ids=["plain", "long", "evil", "wide"]
)
def test_it_fits_the_height_and_the_last_line_stays_in_sight(
    rows: int, height: int, name: str
) -> None:
    lines = drawn(full(rows, name, name), height=height, notice="q quits", rates={"committed": 1.5})
    assert len(lines) <= height
    assert lines[-1] == "q quits"
    assert "moving committed 1.5/s" in lines


def test_where_there_is_no_room_for_all_each_kind_is_shown_and_how_many_there_are() -> None:
    lines = drawn(full(30), height=24, notice="q quits")
    titles = [line.split(")")[0] for line in lines if "/30)" in line]
    assert [title.split(" (")[0] for title in titles] == ["needs a person", "under way", "waiting"]
    shown = [int(title.split("(")[1].split("/")[0]) for title in titles]
    assert len(lines) == 24
    assert min(shown) >= 3
    assert max(shown) - min(shown) <= 1


def test_nobody_writes_on_the_screen_by_a_name() -> None:
    text = "\n".join(drawn(full(2, EVIL, EVIL), width=200))
    assert not {"\x1b", "\u202e"} & set(text)
    assert "\\u001b[2J\\u202e[bold]x[/] [/red]" in text


def test_many_stops_do_not_push_the_last_line_out_of_sight() -> None:
    stops = [Stop(scope=f"t{number}", who="dana", since=AT, why="x") for number in range(40)]
    lines = drawn(overview(stops=stops), height=24, notice="q quits")
    assert (len(lines), lines[-1]) == (24, "q quits")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h00m"),
        (86_399, "23h59m"),
        (86_400, "1d00h"),
        (99 * 86_400, "99d00h"),
    ],
)
def test_a_length_of_time_is_told_in_few_characters(seconds: float, told: str) -> None:
    assert drawing._span(seconds) == told


@pytest.mark.parametrize(
    ("wanted", "left", "shares"),
    [
        ([3, 3, 3], None, [3, 3, 3]),
        ([3, 3, 3], 9, [3, 3, 3]),
        ([5, 5, 5], 9, [3, 3, 3]),
        ([5, 5, 5], 10, [4, 3, 3]),
        ([9, 1, 2], 9, [6, 1, 2]),
        ([5, 5], 0, [0, 0]),
        ([5, 5], -3, [0, 0]),
        ([], 5, []),
    ],
)
def test_room_is_shared_fairly(wanted: list[int], left: int | None, shares: list[int]) -> None:
    assert drawing._shares(wanted, left) == shares
