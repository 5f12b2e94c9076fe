"""Another team's module: one action type that the tests of unknown types do not use."""

from typing import Any

from pydantic import BaseModel

from tallystick import Action, Context, Irreversible


class Shout(Action):
    """Says nothing that can be read back."""

    name = "other.shout"
    rollback = Irreversible("words cannot be taken back", challenge=lambda params: "shout")

    class Params(BaseModel):
        """The words."""

        words: str

    def execute(self, params: Any, context: Context) -> Any:
        return {"said": params.words}
