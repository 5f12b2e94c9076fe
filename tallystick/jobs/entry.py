"""The entry point that every RQ job names, also for a stock `rq worker`."""

import re
from collections.abc import Callable
from functools import cache

from tallystick.core.errors import InvalidInput
from tallystick.jobs.service import Tallystick
from tallystick.jobs.states import State
from tallystick.jobs.transport import perform_with
from tallystick.jobs.worker import Work, count_refusal, runner, worker_name
from tallystick.telemetry import traces

_ID = re.compile(r"[0-9a-f]{16}")


def perform(action_id: str) -> str | None:
    """Run one action; the state that it is left in, or None if there is no such action.

    A stock worker has no parent that renews the lease, so there an effect and its verification
    must fit into one lease.
    """
    if not isinstance(action_id, str) or not _ID.fullmatch(action_id):
        raise InvalidInput(
            field="job", problem="it carries no action id", remedy="Look who sent it."
        )
    run = _runner()
    try:
        state = run(action_id)
    finally:
        traces.flush()  # a stock work-horse is a fork that ends after each job
    return None if state is None else str(state)


@cache
def _runner() -> Callable[[str], State | None]:
    """This process's runner, set up from the environment at its first job."""
    traces.set_up("tallystick-worker")
    tally = Tallystick.from_settings()
    assert tally.transport is not None
    work = Work(tally.settings, tally.registry, tally.keyring, tally.url, None)
    run = runner(work, tally.store, tally.transport, worker_name())
    perform_with(run, refused=lambda why: count_refusal(tally.store))
    return run
