"""Tallystick: a queue for approved actions, done only when the world shows what was approved.

The names are imported when they are first used, so that whoever wants one does not load all, and
the command line can hear Ctrl-C from its first moment on.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "approvals": {"Policy"},
    "core.errors": {"NotApplied", "StaleFence", "TallystickError"},
    "jobs.action": {"Action", "Context", "Protection", "action"},
    "jobs.service": {"Tallystick"},
    "jobs.settings": {"Settings"},
    "jobs.states": {"State"},
    "jobs.view": {"ActionRecord", "JournalEntry"},
    "rollback": {"Compensate", "InBand", "Irreversible", "OutOfBand"},
    "verifiers": {"Verdict"},
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"tallystick.{home}"), name)
            return found
    raise AttributeError(f"module 'tallystick' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
