"""The doctor's checks: pure functions from facts to findings."""

from tallystick.jobs.checks import (
    data,
    durability,
    exposure,
    keyfiles,
    memory,
    replication,
    server,
    timing,
)
from tallystick.jobs.checks.finding import Check

CHECKS: tuple[Check, ...] = (
    *server.CHECKS,
    *durability.CHECKS,
    *memory.CHECKS,
    *data.CHECKS,
    *replication.CHECKS,
    *timing.CHECKS,
    *exposure.CHECKS,
    *keyfiles.CHECKS,
)
"""Every check, in the order of the report."""

__all__ = ["CHECKS", "Check"]
