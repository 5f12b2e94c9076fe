"""The canary: an action that goes through every stage on a schedule, so that silence is noticed."""

from tallystick.canary.actions import Canary, Drill
from tallystick.canary.beat import MODULE, Beat, beat, clear, drill

__all__ = ["MODULE", "Beat", "Canary", "Drill", "beat", "clear", "drill"]
