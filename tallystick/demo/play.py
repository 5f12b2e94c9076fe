"""Plays the stories, and says whether each ended as it should."""

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console

from tallystick.core.errors import InvalidInput
from tallystick.demo import naive as rival
from tallystick.demo import stories
from tallystick.demo.processes import until
from tallystick.demo.scene import Scene, counted
from tallystick.demo.show import Row, Show
from tallystick.demo.stage import Stage, opened


def run(*, story: str | None, naive: bool, console: Console) -> int:
    """Play one story, or all; or, with `naive`, the same kill against the naive order.

    The exit status: 0 if every row is as expected, 1 otherwise. Raises `InvalidInput` for a story
    that does not exist.
    """
    names = _chosen(story, naive=naive)
    show = Show(console)
    if naive:
        duels = rival.compare(show)
        show.duels(duels)
        return 0 if all(duel.ok for duel in duels) else 1
    began = time.monotonic()
    with opened() as stage:
        rows = _play_all(stage, show, names)
    show.table(rows, seconds=time.monotonic() - began)
    return 0 if all(row.ok for row in rows) else 1


def _chosen(story: str | None, *, naive: bool) -> tuple[str, ...]:
    if story is None:
        return stories.STORIES
    if naive or story not in stories.STORIES:
        raise InvalidInput(
            field="story",
            problem="the naive comparison has none" if naive else f"there is no {story!r}",
            remedy=f"Choose one of {', '.join(stories.STORIES)}; or leave it out.",
        )
    return (story,)


def _play_all(stage: Stage, show: Show, names: Sequence[str]) -> list[Row]:
    """Story after story, and then the ledgers once more, for effects that came late."""
    before = stage.targets.effects()
    rows: list[Row] = []
    seen: Counter[str] = Counter()
    for number, name in enumerate(names, 1):
        scene = _play(stage, show, number, name)
        rows += scene.rows
        seen += scene.counted
    until(stage.at_rest, "rest")
    total, expected = (counted(effects) for effects in (stage.targets.effects() - before, seen))
    return [*rows, Row("counted again", "", total, "", expected)]


def _play(stage: Stage, show: Show, number: int, name: str) -> Scene:
    """One story. If it breaks off, that leaves a row that is off."""
    story = stories.BY_NAME[name]
    show.title(number, name, (story.__doc__ or "").strip())
    scene = Scene(stage, show, name)
    try:
        story(scene)
    except Exception as problem:  # the show goes on
        scene.broke(f"{type(problem).__name__}: {problem}")
    return scene
