"""Decides: votes signed on a digest, counted under a policy."""

from tallystick.approvals.keys import Keyring, Signer, create, load_keyring, load_signer
from tallystick.approvals.policy import (
    Ballot,
    Decision,
    Objection,
    Outcome,
    Policy,
    identity,
    objection,
    tally,
)
from tallystick.approvals.votes import APPROVE, REJECT, Vote

__all__ = [
    "APPROVE",
    "REJECT",
    "Ballot",
    "Decision",
    "Keyring",
    "Objection",
    "Outcome",
    "Policy",
    "Signer",
    "Vote",
    "create",
    "identity",
    "load_keyring",
    "load_signer",
    "objection",
    "tally",
]
