"""Plays the stories, and says whether each ended as it should."""

import time

from rich.console import Console

from tallystick.core.errors import InvalidInput, TallystickError
from tallystick.demo import naive as rival
from tallystick.demo import stories
from tallystick.demo.scene import Scene
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
        rows = [
            row for number, name in enumerate(names, 1) for row in _play(stage, show, number, name)
        ]
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


def _play(stage: Stage, show: Show, number: int, name: str) -> list[Row]:
    """One story; its rows. A story that breaks off leaves a row that is off."""
    story = stories.BY_NAME[name]
    show.title(number, name, (story.__doc__ or "").strip())
    scene = Scene(stage, show, name)
    try:
        story(scene)
    except TallystickError as problem:
        scene.broke(str(problem))
    return scene.rows
