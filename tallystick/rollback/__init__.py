"""Undoes: the four kinds of rollback, and the plan of one that an approver sees."""

from tallystick.rollback.kinds import (
    CHOICES,
    Compensate,
    InBand,
    Irreversible,
    OutOfBand,
    Rollback,
    RollbackPlan,
    plan,
)

__all__ = [
    "CHOICES",
    "Compensate",
    "InBand",
    "Irreversible",
    "OutOfBand",
    "Rollback",
    "RollbackPlan",
    "plan",
]
