"""How the protocol is broken on purpose, and how what was broken is hunted; see `broken.py`.

A mutant patches this process while it is hunted; a script is broken in its text.
"""

import importlib.resources as resources
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from typing import Any
from unittest import mock

from tallystick.jobs import run, undo, wire
from tallystick.jobs.decision import Decided, Situation, Stage, Step, decide
from tests.crash.inprocess import Place
from tests.crash.plan import Unit
from tests.crash.scenario import Outcome

Break = Callable[[], AbstractContextManager[Any]]
Rule = Callable[[Situation, Decided], Step]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken variant."""

    name: str
    breaks: Break
    where: tuple[Unit, ...]
    """The units in which it shows."""
    by: tuple[str, ...]
    """The checks that must see it."""


@dataclass(frozen=True, slots=True)
class Caught:
    """What the matrix saw of a mutant: in how many of its scenarios, and by which checks."""

    name: str
    scenarios: int
    violated: int
    checks: tuple[str, ...]
    unseen: tuple[str, ...]
    """Checks that had to see it, and did not."""
    first: str

    @property
    def survived(self) -> bool:
        return not self.violated or bool(self.unseen)


def hunt(mutant: Mutant, place: Place) -> Caught:
    """Play the mutant's units with it, and tell what was caught."""
    outcomes: list[Outcome] = []
    with mutant.breaks():
        for unit in mutant.where:
            outcomes += unit.run(place.play)
    bad = [outcome for outcome in outcomes if outcome.violations]
    checks = sorted({violation.check for outcome in bad for violation in outcome.violations})
    first = f"{bad[0].scenario}: {bad[0].violations[0]}" if bad else ""
    unseen = tuple(check for check in mutant.by if check not in checks)
    return Caught(mutant.name, len(outcomes), len(bad), tuple(checks), unseen, first)


# --- how things are broken -----------------------------------------------------------------------


def rule(step: Rule, *, undoing: bool = False) -> Break:
    """Overrule the decision table, while acting or while undoing."""
    module = undo if undoing else run
    stage = Stage.UNDOING if undoing else Stage.ACTING

    def wrong(at: Situation) -> Decided:
        right = decide(at)
        return replace(right, step=step(at, right)) if at.stage is stage else right

    return lambda: mock.patch.object(module, "decide", wrong)


def script(name: str, *edits: tuple[str, str]) -> Break:
    """Replace text of a Lua script."""

    class Edited:
        def __init__(self, real: Traversable) -> None:
            self._real = real

        def __truediv__(self, part: str) -> "Edited":
            return Edited(self._real / part)

        def read_text(self) -> str:
            text = self._real.read_text()
            for old, new in edits if self._real.name == f"{name}.lua" else ():
                assert old in text, f"{name}.lua has no {old!r} to break"
                text = text.replace(old, new)
            return text

    files = resources.files
    return lambda: mock.patch.object(wire, "files", lambda package: Edited(files(package)))


def replaced(owner: object, name: str, new: Callable[..., Any]) -> Break:
    """Put a function in the place of another."""
    assert hasattr(owner, name)
    return lambda: mock.patch.object(owner, name, new)


def together(*breaks: Break) -> Break:
    """Several at once."""

    @contextmanager
    def all_of_them() -> Iterator[None]:
        with ExitStack() as stack:
            for one in breaks:
                stack.enter_context(one())
            yield

    return all_of_them
