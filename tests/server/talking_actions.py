"""Action types that say more than they should: in their own log lines, and in what they raise."""

import logging
from typing import Any

from tallystick import Context
from tests.server import actions

log = logging.getLogger(__name__)

SECRET = "hunter2-Planted"


class Talks(actions.SetItem):
    """Sets an item, and logs that it does."""

    name = "item.talks"

    def execute(self, params: Any, context: Context) -> Any:
        log.info("setting %s", params.item)
        return super().execute(params, context)


class Raises(actions.SetBlind):
    """Quotes a password and its parameters in what it raises."""

    name = "item.raises"

    def execute(self, params: Any, context: Context) -> Any:
        raise RuntimeError(f"{params.value} refused by https://app:{SECRET}@bank/, {params!r}")
