"""Plays the stories, and says whether each ended as it should."""

from rich.console import Console

from tallystick.demo import naive as rival
from tallystick.demo.show import Show


def run(*, story: str | None, naive: bool, console: Console) -> int:
    """Play one story, or all; or with `naive` the comparison with the naive order.

    The exit status: 0 if every row is as expected, 1 otherwise. Raises `InvalidInput` for a story
    that does not exist.
    """
    names = _chosen(story, naive)
    show = Show(console)
    if naive:
        return rival.run(show)
