"""Tallystick: a queue for approved actions, done only when the world shows what was approved."""

from tallystick.approvals import Policy
from tallystick.core.errors import NotApplied, StaleFence, TallystickError
from tallystick.jobs.action import Action, Context, Protection, action
from tallystick.jobs.service import Tallystick
from tallystick.jobs.settings import Settings
from tallystick.jobs.states import State
from tallystick.jobs.view import ActionRecord, JournalEntry
from tallystick.rollback import Compensate, InBand, Irreversible, OutOfBand
from tallystick.verifiers import Verdict

__version__ = "0.1.0"

__all__ = [
    "Action",
    "ActionRecord",
    "Compensate",
    "Context",
    "InBand",
    "Irreversible",
    "JournalEntry",
    "NotApplied",
    "OutOfBand",
    "Policy",
    "Protection",
    "Settings",
    "StaleFence",
    "State",
    "Tallystick",
    "TallystickError",
    "Verdict",
    "action",
]
