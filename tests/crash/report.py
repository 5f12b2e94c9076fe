"""What is shown and kept: tables for people, and docs/crash-matrix.json, from which
docs/crash-matrix.md is written. Each kind of run replaces its own section."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.crash.matrix import Total
from tests.crash.mutants import Caught
from tests.crash.scenario import Outcome
from tests.crash.speed import Speed
from tests.crash.zombies import Woken

DOCS = Path(__file__).parents[2] / "docs"

_INTRO = """\
# The crash matrix

Written by `python -m tests.crash` (`make crash`); do not edit. Every scenario runs one approved
action to rest while somebody is struck at one moment, and often again during the recovery. A moment
is before a command of the run is sent, after it ran and before its reply, or before, inside and
after each call of the target. Then an outside checker compares the target's own ledger with the
record, the journal and the alerts: at most one effect; committed means exactly one, seen again;
every effect has an earlier stored intent and an earlier signed approval; nothing is stuck; the
journal is whole; no failure is silent; rolled back means that the world is as before.
"""

_VICTIMS = """\
*work-horse*: the process that runs the action is killed. *parent*: the process that renews its
lease. *both*. *redis*: kill -9 with the command in flight, back at once. *redis, for long*: away
until the worker gives up or waits. *connection*: cut. *frozen*: stopped past its lease; another
worker decides; it goes on. *frozen, unheard*: the same, and what it had sent or asked at that
moment has no answer, so that it repeats it. *In process* a strike is an exception that nothing
catches and a cut connection, around the real worker code and a real server; *real processes* are
real workers under SIGKILL and SIGSTOP.
"""


# --- what is kept --------------------------------------------------------------------------------


def matrix_section(total: Total, seconds: float) -> dict[str, Any]:
    """The matrix as data."""
    names = ("driver", "protection", "path", "victim", "state")
    return {
        "scenarios": total.scenarios,
        "violations": len(total.bad),
        "not_reached": total.missed,
        "seconds": round(seconds),
        "rows": [
            dict(zip(names, row, strict=True))
            | {"scenarios": count, "violations": total.broken[row]}
            for row, count in sorted(total.rows.items())
        ],
        "zombies": [_zombie(woken) for woken in total.woken],
    }


def _zombie(woken: Woken) -> dict[str, Any]:
    return {
        "protection": woken.zombie.protection.value,
        "path": woken.zombie.path,
        "stopped": woken.zombie.point.replace("_", " the ")
        + (", its parent not" if woken.zombie.alone else ""),
        "decided": woken.decided,
        "ended_by": woken.ended_by or "itself",
        "state": woken.outcome.state,
        "effects": woken.outcome.effects,
        "late_evidence": woken.late,
        "violations": [str(one) for one in woken.outcome.violations],
    }


def mutants_section(caught: Sequence[Caught]) -> list[dict[str, Any]]:
    """The mutants as data."""
    return [asdict(one) for one in caught]


def speed_section(speeds: Sequence[Speed]) -> list[dict[str, Any]]:
    """The recovery times as data."""
    return [asdict(one) for one in speeds]


def keep(**sections: Any) -> None:
    """Replace these sections, and write both files."""
    file = DOCS / "crash-matrix.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept |= sections
    file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    (DOCS / "crash-matrix.md").write_text(markdown(kept))


def markdown(kept: dict[str, Any]) -> str:
    """The page."""
    parts = [_INTRO]
    if matrix := kept.get("matrix"):
        parts.append(
            f"{matrix['scenarios']:,} scenarios in {matrix['seconds']} s on 2 cores,"
            f" **{matrix['violations']} violations**.\n\n{_VICTIMS}"
        )
        for driver, rows in _by(matrix["rows"], "driver").items():
            parts.append(f"## {driver.capitalize()}\n\n" + _pipe(*_grid(rows)))
        parts.append(_ZOMBIES + _pipe(*_zombie_grid(matrix["zombies"])))
    if mutants := kept.get("mutants"):
        parts.append(_MUTANTS + _pipe(*_mutant_grid(mutants)))
    if speed := kept.get("speed"):
        parts.append(_SPEED + _pipe(*_speed_grid(speed)))
    return "\n".join(parts)


_ZOMBIES = """\
## Zombies

A real worker, parent and work-horse, is stopped (SIGSTOP) at a point; its lease runs out and a
second worker decides; then the work-horse goes on. Within an effect the kernel's timer ends it at
its first instruction (SIGALRM); elsewhere its next move is refused, and what it knows is appended
as late evidence, which alerts again if the action was halted. A work-horse that is stopped alone
is killed by its parent (SIGKILL): within an effect at its deadline, elsewhere as one that hangs.

"""

_MUTANTS = """\
## Mutants

The protocol, broken on purpose, each in one way. All must be caught.

"""

_SPEED = """\
## Speed of recovery

From the effect (for Redis, from its first answer after the restart) until the outcome is settled by
evidence, by the clocks of ledger and journal. The floor is what must pass in any case.

"""


# --- tables --------------------------------------------------------------------------------------

Grid = tuple[list[str], list[list[str]]]


def _by(rows: Iterable[dict[str, Any]], name: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row[name]].append(row)
    return dict(found)


def _grid(rows: Sequence[dict[str, Any]]) -> Grid:
    """Protection by victim: how many scenarios, and how they ended."""
    victims = sorted({row["victim"] for row in rows})
    lines = []
    for protection, mine in _by(rows, "protection").items():
        cells = []
        for victim in victims:
            these = [row for row in mine if row["victim"] == victim]
            cells.append(f"**{_count(these)}**: {_ends(these)}" if these else "–")
        lines.append([protection, *cells, _count(mine)])
    return ["protection", *victims, "all"], lines


def _count(rows: Sequence[dict[str, Any]]) -> str:
    """How many scenarios, and how many of them broke a promise, if any did."""
    broken = sum(row["violations"] for row in rows)
    return f"{sum(row['scenarios'] for row in rows):,}" + (f" ({broken} BROKEN)" if broken else "")


def _ends(rows: Sequence[dict[str, Any]]) -> str:
    states: Counter[str] = Counter()
    for row in rows:
        states[row["state"]] += row["scenarios"]
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


def _short_grid(rows: Sequence[dict[str, Any]]) -> Grid:
    """The same for a narrow screen: how many, and for each protection how they ended."""
    victims = sorted({row["victim"] for row in rows})
    lines = []
    for protection, mine in [*_by(rows, "protection").items(), ("all", rows)]:
        cells = [_count([row for row in mine if row["victim"] == victim]) for victim in victims]
        lines.append([protection, *cells, _count(mine), _ends(mine)])
    return ["protection", *victims, "all", "final states"], lines


def _short_zombie_grid(rows: Sequence[dict[str, Any]]) -> Grid:
    lines = []
    for protection, mine in _by(rows, "protection").items():
        timed = sum(row["ended_by"] == "SIGALRM" for row in mine)
        late = sum(row["late_evidence"] > 0 for row in mine)
        doubled = sum(row["effects"] > 1 for row in mine)
        ends = Counter(row["state"] for row in mine)
        text = ", ".join(f"{count} {state}" for state, count in ends.most_common())
        lines.append([protection, *map(str, (len(mine), doubled, timed, late)), text])
    return [
        "protection", "zombies", "second effects", "SIGALRM", "late evidence", "final states",
    ], lines  # fmt: skip


def _zombie_grid(rows: Sequence[dict[str, Any]]) -> Grid:
    lines = [
        [
            f"{row['protection']}, {row['path']}",
            row["stopped"],
            row["decided"],
            row["ended_by"],
            row["state"],
            str(row["effects"]),
            str(row["late_evidence"]),
        ]
        for row in rows
    ]
    heads = ["action", "stopped", "second decides", "ended by", "state", "effects", "late evidence"]
    return heads, lines


def _mutant_grid(rows: Sequence[dict[str, Any]]) -> Grid:
    lines = [
        [
            row["name"],
            f"{row['violated']} of {row['scenarios']}",
            _seen_by(row),
        ]
        for row in rows
    ]
    return ["broken", "scenarios", "caught by"], lines


def _seen_by(row: dict[str, Any]) -> str:
    checks = ", ".join(check.replace("_", " ") for check in row["checks"])
    unseen = ", ".join(check.replace("_", " ") for check in row["unseen"])
    return (checks or "**survived**") + (f"; **not by {unseen}**" if unseen else "")


def _speed_grid(rows: Sequence[dict[str, Any]]) -> Grid:
    lines = [
        [
            row["what"],
            str(row["runs"]),
            _seconds(row["median"], row["floor"]),
            _seconds(row["longest"], row["floor"]),
        ]
        for row in rows
    ]
    return ["what", "runs", "median", "longest"], lines


def _seconds(found: float, floor: float) -> str:
    return f"{floor:g} + {found - floor:.2f} s" if floor else f"{found:.2f} s"


def _pipe(heads: list[str], lines: list[list[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def show(console: Console, title: str, grid: Grid) -> None:
    """Print a table."""
    heads, lines = grid
    table = Table(title=title)
    for head in heads:
        table.add_column(head, overflow="fold")
    for line in lines:
        table.add_row(*[cell.replace("**", "") for cell in line])
    console.print(table)


def show_matrix(console: Console, section: dict[str, Any]) -> None:
    for driver, rows in _by(section["rows"], "driver").items():
        show(console, driver, _short_grid(rows))
    if section["zombies"]:
        show(console, "zombies", _short_zombie_grid(section["zombies"]))
    console.print(
        f"{section['scenarios']:,} scenarios in {section['seconds']} s,"
        f" {section['violations']} violations; {section['not_reached']} strikes came too late"
    )


def show_mutants(console: Console, section: list[dict[str, Any]]) -> None:
    show(console, "mutants", _mutant_grid(section))


def show_speed(console: Console, section: list[dict[str, Any]]) -> None:
    show(console, "speed of recovery", _speed_grid(section))


def show_bad(console: Console, bad: Sequence[Outcome], most: int = 10) -> None:
    """The first violations, with the journal."""
    for outcome in bad[:most]:
        struck = ", ".join(outcome.struck)
        console.print(f"\n[red]{outcome.scenario}[/] ({struck})", highlight=False)
        for violation in outcome.violations:
            console.print(f"  [bold]{violation}[/]", highlight=False)
        for line in outcome.journal:
            console.print(f"    {line}", highlight=False, markup=False)
