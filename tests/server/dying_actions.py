"""An action type that always lands wrong, and whose work-horse dies where its item says so."""

from typing import Any

from tallystick import Context, Verdict
from tests.server.actions import SetWrong, at

POINTS = ("effect", "verify", "undo")


class SetWrongAndDie(SetWrong):
    """Dies, once, after the effect, while it is verified or while it is undone, if armed so."""

    name = "item.dying"

    def execute(self, params: Any, context: Context) -> Any:
        result = super().execute(params, context)
        at(f"effect-{params.item}")
        return result

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        at(f"verify-{params.item}")
        return super().verify(params, before, now, result)

    def undo(self, params: Any, before: Any, result: Any, context: Context) -> None:
        at(f"undo-{params.item}")
        super().undo(params, before, result, context)


del SetWrong  # it belongs to the other module
