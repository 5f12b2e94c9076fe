"""A scene: one story as it is played, told and checked against the targets' own ledgers."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tallystick import ActionRecord, JournalEntry
from tallystick.demo import accidents
from tallystick.demo.show import Recovery, Row, Show
from tallystick.demo.stage import Stage
from tallystick.demo.targets import Targets

AGENT, APPROVER, ON_CALL = "billing-agent", "maria", "olu"
"""Who proposes, who approves, who is called."""

_PATIENCE_SECONDS = 20.0


class Scene:
    """What a story is written with. Each `expect` ends an act and leaves a row."""

    def __init__(self, stage: Stage, show: Show, story: str) -> None:
        self.stage = stage
        self.rows: list[Row] = []
        self._show = show
        self.counted: Counter[str] = Counter()
        """All effects that were counted in the rows."""
        self._story = story
        self._act = ""
        accidents.disarm()
        self._begin()

    def _begin(self) -> None:
        self._before = self.targets.effects()
        self._failed: list[str] = []
        self._recovery: Recovery | None = None

    @property
    def targets(self) -> Targets:
        return self.stage.targets

    def act(self, name: str) -> None:
        """Begin another part of the same story, with a row of its own."""
        self._act = f"\n  {name}"
        self._begin()

    # --- what people do ------------------------------------------------------------------------

    def say(self, words: str) -> None:
        """Tell the audience what happens."""
        self._show.say(words)

    def accounts(self, **balances: str) -> None:
        """Open accounts at the bank, or set what is in them."""
        for owner, balance in balances.items():
            self.targets.bank.open_account(owner, balance)

    def propose(self, name: str, *, key: str, **params: Any) -> str:
        """An agent proposes an action; its id."""
        found = self.stage.tally.propose(name, params, key=key, by=AGENT)
        told = ", ".join(f"{field} {value}" for field, value in params.items())
        self.say(f"{AGENT} proposes {name} ({told}): action {found.id} is {found.state}")
        return found.id

    def approve(self, id: str, *, answer: str | None = None) -> None:
        """A person approves it."""
        self.stage.tally.approve(id, by=APPROVER, answer=answer)
        typed = f", typing back {answer!r}" if answer else ""
        self.say(f"{APPROVER} approves what she was shown{typed}")

    def arm(self, accident: str, detail: str = "") -> None:
        """Prepare an accident for the next process that comes by."""
        accidents.arm(accident, detail)

    # --- what is seen --------------------------------------------------------------------------

    def settled(self, id: str) -> ActionRecord:
        """Wait until the action is at rest."""
        return self.stage.tally.wait(id, timeout=_PATIENCE_SECONDS)

    def journal(self, id: str) -> None:
        """Show what happened to an action."""
        self._show.journal(self.stage.tally.history(id))

    def target(self, words: str) -> None:
        """Show what a target holds."""
        self._show.target(words)

    def balances(self, **expected: str) -> None:
        """Check what the bank shows."""
        shown = self.targets.bank.balances()
        self.target(f"bank: {_pairs({owner: shown.get(owner) for owner in expected})}")
        self.check(
            f"the bank shows {_pairs(expected)}",
            all(shown.get(owner) == balance for owner, balance in expected.items()),
        )

    def check(self, words: str, holds: bool) -> None:
        """Something that must be so."""
        self._show.checked(words, holds)
        if not holds:
            self._failed.append(words)

    def alert(self, id: str, reason: str) -> None:
        """Wait for an alert, and show it."""
        self._show.alert(self.stage.alert(id, reason))

    def recovered(self, id: str) -> None:
        """Check that another process resumed the action after the kill, and measure how soon."""
        history = self.stage.tally.history(id)
        claims = [entry for entry in history if entry.evidence["event"] == "claimed"]
        killed = accidents.killed_at() or 0.0
        self.check(
            "another process resumed it", len({entry.worker for entry in claims}) == len(claims) > 1
        )
        self._recovery = Recovery(_at(claims[-1]) - killed, _at(history[-1]) - killed)

    # --- the end -------------------------------------------------------------------------------

    def expect(self, state: str, shown: str, effects: str) -> None:
        """End the act: `shown` is the state it came to; count the effects at every target."""
        new = self.targets.effects() - self._before
        self.counted += new
        happened = counted(new)
        row = Row(
            self._story + self._act,
            shown,
            happened,
            state,
            effects,
            tuple(self._failed),
            self._recovery,
        )
        self._show.ended(row)
        self.rows.append(row)

    def broke(self, problem: str) -> None:
        """End the act that could not be played to its end."""
        self.check(problem, holds=False)
        self.expect("", "broke off", "")


def counted(effects: Mapping[str, int]) -> str:
    """`1 transfer, 2 mails`; `none`."""
    parts = [
        f"{count} {kind}" + ("s" if count > 1 else "") for kind, count in sorted(effects.items())
    ]
    return ",\n".join(parts) or "none"


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _at(entry: JournalEntry) -> float:
    return datetime.fromisoformat(entry.at).timestamp()
