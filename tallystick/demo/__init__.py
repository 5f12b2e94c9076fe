"""Shows Tallystick: every ending an action can have, on real targets, and counted there."""

from tallystick.demo.play import run
from tallystick.demo.stories import STORIES

__all__ = ["STORIES", "run"]
