"""The effect that is measured: one INCR in Redis, as a governed action and as a plain function."""

from typing import Any

from pydantic import BaseModel

from tallystick import Action, Context, OutOfBand, Verdict
from tallystick.jobs.connection import Client

COUNTER = "benchmark:counter"


class Increment(Action):
    """Add one to a counter of its own."""

    name = "benchmark.increment"
    url = ""
    client: Client
    protection = "keyed"
    rollback = OutOfBand("none: this is a benchmark")

    class Params(BaseModel):
        """Which counter."""

        number: int

    def observe(self, params: Any) -> Any:
        return int(self.client.get(f"{COUNTER}:{params.number}") or 0)

    def execute(self, params: Any, context: Context) -> Any:
        return int(self.client.incr(f"{COUNTER}:{params.number}"))

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.equal(expected=before + 1, observed=now)


def increment(number: int) -> int:
    """The ungoverned effect, as an RQ job."""
    return int(Increment.client.incr(f"{COUNTER}:rq:{number}"))
