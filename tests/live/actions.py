"""Two action types that land wrong: one whose failure stays open, one that is over in a flash."""

from tests.server.actions import SetItem, SetWrong

__all__ = ["Flash", "SetItem", "SetWrong"]


class Flash(SetWrong):
    """The same, under a name of its own, so that its alerts are told from the others'."""

    name = "item.flash"
