"""One screen that says how things stand: what is wrong first, then what waits and what runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tallystick.cli.render import styled, visible
from tallystick.jobs.overview import Calling, Overview, UnderWay, Waiting
from tallystick.jobs.states import OPEN, State

_AFTER_A_LOOK = (
    "\n[dim]then[/] tallystick resolve ID --to STATE --by WHO --evidence TEXT"
    "\n[dim]or[/]   tallystick acknowledge ID --by WHO [dim](where nothing is left to decide)[/]"
)
_WIDEST = 120
_MINUTE, _HOUR, _DAY = 60, 3600, 86400

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a section; one without a width takes what the others leave."""

    name: str
    width: int | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """Some actions of one kind, a line each."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Cells]
    all: int
    """How many there are, of which `rows` are the first."""

    @property
    def lines(self) -> int:
        """What it takes to show it whole."""
        return len(self.rows) + 1 if self.rows else 0


def screen(
    found: Overview,
    *,
    width: int,
    rates: Mapping[str, float] | None = None,
    notice: str = "",
    height: int | None = None,
) -> RenderableType:
    """The whole screen, `width` columns wide; within `height` lines if one is given, which cuts
    the lists and says so.

    `rates` are moves per second by state, where two looks have shown them. `notice` is markup for
    the last line.
    """
    head = [*_head(found), *_numbers(found, rates)]
    if not notice and found.calling:
        notice = _AFTER_A_LOOK
    foot = [Text.from_markup(notice)] if notice else []
    sections = [section for section in _sections(found) if section.rows]
    if height is not None:
        head = head[: height - len(foot)]
    left = None if height is None else height - len(head) - len(foot)
    shares = _shares([section.lines for section in sections], left)
    for line in (*head, *foot):
        line.no_wrap, line.overflow = True, "ellipsis"
    parts: list[RenderableType] = list(head)
    for section, share in zip(sections, shares, strict=True):
        parts += _shown(section, share, min(width, _WIDEST), spaced=height is None)
    return Group(*parts, *foot)


# --- the head ------------------------------------------------------------------------------------


def _line(text: str) -> str:
    """Text that is safe to print, and stays on its line."""
    return visible(" ".join(text.splitlines()))


def _head(found: Overview) -> Iterator[Text]:
    place = f"{_line(found.server)} [dim]namespace[/] {_line(found.namespace)}"
    yield Text.from_markup(f"[bold]tallystick[/] {found.at[:19]}Z  {place}")
    if found.safe:
        told = "[bold green]SAFE[/] nothing needs a person, nothing is stuck"
        yield Text.from_markup(told + (", new actions are stopped" if found.stops else ""))
    for problem in found.problems:
        told = f"[bold red]{_line(problem.what)}[/]  [bold]{_line(problem.next)}[/]"
        yield Text.from_markup(told)
    for stop in found.stops:
        scope = "everything" if stop.scope == "*" else _line(stop.scope)
        by = f"by {_line(stop.who)} {_ago(stop.since, found.at)} ago: {_line(stop.why)}"
        yield Text.from_markup(f"[bold yellow]stopped[/] {scope} [dim]{by}[/]")


def _numbers(found: Overview, rates: Mapping[str, float] | None) -> Iterator[Text]:
    now = " · ".join(_counted(found, state) for state in State if state in OPEN)
    yield Text.from_markup(f"[dim]now[/] {now}")
    alive = f"{found.workers} alive" if found.workers else "[yellow]none alive[/]"
    late = f"[red]{found.overdue} overdue[/]" if found.overdue else "none overdue"
    alerts = f" · {found.undelivered_alerts} alerts to deliver" if found.undelivered_alerts else ""
    queue = f"queue {found.queue_depth}"
    yield Text.from_markup(f"[dim]work-horses[/] {alive} · {queue} · {late}{_due(found)}{alerts}")
    ended = " · ".join(f"{styled(state)} {n}" for state, n in found.last_hour.items())
    yield Text.from_markup(f"[dim]last hour[/] {ended or 'nothing ended'}")
    if rates is not None:
        moved = [f"{state} {rate:.1f}/s" for state, rate in rates.items() if rate >= 0.05]
        yield Text.from_markup(f"[dim]moving[/] {' · '.join(moved) or 'nothing'}")


def _counted(found: Overview, state: State) -> str:
    number = found.actions[state]
    name = "waiting" if state is State.WAITING_FOR_APPROVAL else state.replace("_", " ")
    return f"{name} [bold]{number}[/]" if number else f"[dim]{name} 0[/]"


def _due(found: Overview) -> str:
    if found.oldest_due is None:
        return ""
    seconds = _seconds(found.oldest_due, found.at)
    return f" · next due in {_span(seconds)}" if seconds >= 0 else f" · due for {_span(-seconds)}"


# --- the lists -----------------------------------------------------------------------------------


def _sections(found: Overview) -> Iterator[Section]:
    at = found.at
    yield Section(
        "needs a person",
        (Column("", 32), Column("action"), Column("state", 15), Column("for", 7)),
        [_calling(one, at) for one in found.calling],
        max(found.halted, found.unacknowledged),
    )
    yield Section(
        "under way",
        (
            Column("", 16),
            Column("action"),
            Column("state", 12),
            Column("for", 7),
            Column("lease", 6),
            Column("worker", 16),
        ),
        [_under_way(one, at) for one in found.under_way],
        sum(found.actions[state] for state in ("running", "verifying", "rolling_back")),
    )
    yield Section(
        "waiting",
        (Column("", 16), Column("action"), Column("needs", 30), Column("left", 7)),
        [_waiting(one, at) for one in found.waiting],
        found.actions[State.WAITING_FOR_APPROVAL],
    )


def _calling(one: Calling, at: str) -> Cells:
    state = f"[dim]{one.state}[/]" if one.acknowledged else styled(one.state)
    return (f"[bold]{_line(one.next)}[/]", _line(one.action), state, _ago(one.since, at))


def _under_way(one: UnderWay, at: str) -> Cells:
    lease = "[dim]none[/]" if one.lease_seconds is None else _span(one.lease_seconds)
    state, name = styled(one.state), _line(one.action)
    return (_line(one.id), name, state, _ago(one.since, at), lease, _line(one.worker))


def _waiting(one: Waiting, at: str) -> Cells:
    votes = f"{one.missing} vote{'' if one.missing == 1 else 's'}"
    more = f" of {one.quorum}" if one.quorum > one.missing else ""
    others = f", not {_line(', '.join(one.not_by))}" if one.not_by else ""
    left = _seconds(one.expires_at, at)
    window = _span(left) if left > 0 else "[red]over[/]"
    return (_line(one.id), _line(one.action), f"{votes}{more}{others}", window)


def _shares(wanted: Sequence[int], left: int | None) -> list[int]:
    """How many lines each section gets: all that it wants if there is room, else the same for
    each, and what one does not need goes to those that do, the first of them before the others."""
    if left is None or sum(wanted) <= left:
        return list(wanted)
    shares = [0] * len(wanted)
    for _ in range(max(left, 0)):
        hungry = [at for at, share in enumerate(shares) if share < wanted[at]]
        shares[min(hungry, key=lambda at: shares[at])] += 1
    return shares


def _shown(section: Section, share: int, width: int, *, spaced: bool) -> Iterator[RenderableType]:
    """A section within so many lines; one that cannot show a row is left out."""
    if share < 2:
        return
    if spaced:
        yield Text("")
    rows = section.rows[: share - 1]
    of = f"{len(rows)}/{section.all}" if len(rows) < section.all else str(len(rows))
    title = f"{section.title} ({of})"
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=width)
    for number, column in enumerate(section.columns):
        table.add_column(
            Text(column.name or title, style="bold" if number == 0 else "dim"),
            width=column.width and max(column.width, len(title) if number == 0 else 0),
            ratio=None if column.width else 1,
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*row)
    yield table


# --- times ---------------------------------------------------------------------------------------


def _seconds(when: str, now: str) -> float:
    """From `now` to `when`; negative if it has passed."""
    return (datetime.fromisoformat(when) - datetime.fromisoformat(now)).total_seconds()


def _ago(since: str, now: str) -> str:
    return _span(max(-_seconds(since, now), 0))


def _span(seconds: float) -> str:
    """A length of time in at most seven characters: 4s, 12m, 3h05m, 2d04h."""
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02}h"


def clock() -> str:
    """The time of this machine, for what the store cannot tell."""
    return datetime.now(UTC).isoformat(timespec="seconds")[:19] + "Z"
