"""Something to approve in the stack: prices on the signs of a shop, each sign a file.

The painter can be told to work carelessly. Then the sign says something else than was approved,
the re-read finds it, the old sign is put back, and somebody is paged.
"""

import contextlib
import os
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from tallystick import Action, Context, InBand, Verdict


def sign(name: str) -> Path:
    """The file that is the sign."""
    return Path(os.environ.get("SHOP_DIR", "/srv/shop")) / f"{name}.txt"


def paint(name: str, text: str) -> None:
    """Replace a sign as a whole, so that nobody ever reads half of one."""
    draft = sign(name).with_suffix(".draft")
    draft.write_text(text)
    draft.replace(sign(name))


class Reprice(Action):
    """Paint another price on a sign."""

    name = "shop.reprice"
    protection = "readable"
    rollback = InBand("put_back")

    class Params(BaseModel):
        """Which sign, what it shall say, and whether the painter is in a hurry."""

        sign: str = Field(pattern=r"^[a-z0-9-]{1,40}$")
        price: Annotated[Decimal, Field(gt=0, max_digits=8, decimal_places=2)]
        careless: bool = False

    def observe(self, params: Params) -> Any:
        with contextlib.suppress(FileNotFoundError):
            return {"price": sign(params.sign).read_text()}
        return {"price": None}

    def execute(self, params: Params, context: Context) -> Any:
        wrong = Decimal("0.10") if params.careless else Decimal(0)
        paint(params.sign, f"{params.price + wrong:.2f}")

    def verify(self, params: Params, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.equal(expected={"price": f"{params.price:.2f}"}, observed=now)

    def put_back(self, params: Params, before: Any, result: Any, context: Context) -> Any:
        if before["price"] is None:
            sign(params.sign).unlink()
        else:
            paint(params.sign, before["price"])
