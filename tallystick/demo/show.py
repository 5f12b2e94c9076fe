"""What the audience sees: the stories, told briefly, and the table at the end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tallystick import JournalEntry, State


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long an action lay about after a kill, in seconds."""

    resumed: float
    """Until another process claimed it."""
    settled: float
    """Until it was at rest."""


@dataclass(frozen=True, slots=True)
class Row:
    """The end of a story: what it came to, and what it should have."""

    story: str
    state: str
    effects: str
    expected_state: str
    expected_effects: str
    failed_checks: tuple[str, ...] = ()
    """What else should have been so, and was not."""
    recovery: Recovery | None = None

    @property
    def ok(self) -> bool:
        as_expected = (self.expected_state, self.expected_effects)
        return (self.state, self.effects) == as_expected and not self.failed_checks


@dataclass(frozen=True, slots=True)
class Duel:
    """One order, given to the naive queue and to ours, with the same kill."""

    target: str
    naive_says: str
    naive_effects: int
    state: str
    effects: int

    @property
    def ok(self) -> bool:
        """The naive order doubled it; ours did not, or says that it does not know."""
        return self.naive_effects == 2 and (
            self.effects == 1 and self.state in {State.COMMITTED, State.UNKNOWN}
        )


class Show:
    """Tells stories on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def title(self, number: int, name: str, sentence: str) -> None:
        """The heading of a story."""
        self.console.print()
        self.console.print(Text(f"{number}. {name}", "bold cyan"))
        self.console.print(Padding(Text(sentence, "italic"), (0, 0, 0, 3), expand=False))

    def say(self, words: str) -> None:
        """One step of the story."""
        self._line("·", words, "dim")

    def checked(self, words: str, holds: bool) -> None:
        """Something that was checked."""
        self._line("✓" if holds else "✗", words, "green" if holds else "bold red")

    def ended(self, row: Row) -> None:
        """How a story, or an act of it, came out."""
        came_to = f"{row.state}; effects at the targets: {row.effects}".replace("\n", " ")
        self.checked(came_to, row.ok)

    def journal(self, entries: Iterable[JournalEntry]) -> None:
        """What happened to an action, each line of its journal in brief."""
        steps = Text(" · ").join(_brief(entry) for entry in entries)
        self._line("journal", steps, "magenta")

    def target(self, words: str) -> None:
        """What a target shows."""
        self._line("target", words, "magenta")

    def alert(self, facts: Mapping[str, object]) -> None:
        """An alert as on-call engineers get it."""
        words = "{reason}: action {action_id} is {state}; {next}".format_map(facts)
        self._line("ALERT", words, "bold red")

    def table(self, rows: Sequence[Row], *, seconds: float) -> None:
        """All rows, and the times of recovery."""
        table = _table("story", "state", "effects", "expected", "ok")
        for row in rows:
            expected = (
                row.expected_effects
                if row.state == row.expected_state
                else f"{row.expected_state}\n{row.expected_effects}"
            )
            table.add_row(row.story, row.state, row.effects, expected, _mark(row.ok))
        self.console.print()
        self.console.print(table)
        self.console.print()
        for row in rows:
            for check in row.failed_checks:
                self.console.print(Text(f"✗ {row.story}: {check}", "bold red"))
        if any(row.recovery for row in rows):
            self._recoveries(rows)
        right = sum(row.ok for row in rows)
        self.console.print(f"{right} of {len(rows)} as expected, in {seconds:.1f} s")

    def duels(self, duels: Sequence[Duel]) -> None:
        """The naive order and ours, side by side."""
        table = _table("target", "naive: state", "effects", "ours: state", "effects", "ok")
        for duel in duels:
            table.add_row(
                duel.target,
                duel.naive_says,
                Text(str(duel.naive_effects), "bold red" if duel.naive_effects > 1 else ""),
                duel.state,
                Text(str(duel.effects), "bold red" if duel.effects > 1 else "green"),
                _mark(duel.ok),
            )
        self.console.print()
        self.console.print(table)

    def _recoveries(self, rows: Sequence[Row]) -> None:
        table = _table("seconds from the SIGKILL until", "resumed by another", "settled")
        for row in rows:
            if row.recovery:
                times = (f"{row.recovery.resumed:.2f}", f"{row.recovery.settled:.2f}")
                table.add_row(row.story, *times)
        self.console.print(table)
        self.console.print()

    def _line(self, label: str, words: str | Text, style: str) -> None:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(label, style), words if isinstance(words, Text) else Text(words))
        self.console.print(Padding(grid, (0, 0, 0, 3), expand=False))


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _mark(ok: bool) -> Text:
    return Text("✓", "green") if ok else Text("✗", "bold red")


def _brief(entry: JournalEntry) -> Text:
    """`claimed (worker 812, token 1) → running`, in one piece."""
    event = str(entry.evidence.get("event"))
    facts = {
        "proposed": entry.who,
        "vote": entry.who,
        "claimed": f"process {entry.worker.rpartition(':')[2]}, token {entry.token}",
        "intent": f"attempt {entry.evidence.get('attempt')}",
        "replied": str(entry.evidence.get("reply")),
        "resolved": entry.who,
    }
    text = Text(event.replace("_", " "))
    if event in facts:
        text.append(f" ({facts[event]})", "dim")
    if entry.to_state != entry.from_state:
        text.append(f" → {entry.to_state}", "bold")
    return text
