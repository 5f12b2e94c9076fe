"""The next release of `tests.server.actions`: types in their second version, and no longer in their
first."""

from tests.server import actions


class SetItem(actions.SetItem):
    version = 2


class SetKeyed(actions.SetKeyed):
    version = 2


class SetBlind(actions.SetBlind):
    version = 2


class SetWrong(actions.SetWrong):
    version = 2
