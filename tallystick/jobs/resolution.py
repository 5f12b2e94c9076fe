"""A person's signed decision on what the machine could not settle."""

from typing import Any

from tallystick.approvals import Keyring, Signer
from tallystick.jobs.record import Line, Stored
from tallystick.jobs.seals import last_line
from tallystick.jobs.states import State

RESOLUTIONS = (State.COMMITTED, State.ROLLED_BACK, State.ABANDONED)
"""Where a person may take an action that is unknown, corrupt or not rolled back."""

_PURPOSE = "tallystick.resolution.v1"


def sign(
    signer: Signer, *, id: str, to: str, by: str, proof: str, namespace: str
) -> dict[str, Any]:
    """The evidence of a resolution: what it claims, and the signature over all of it."""
    claim = {
        "purpose": _PURPOSE,
        "action_id": id,
        "to": to,
        "who": by,
        "evidence": proof,
        "namespace": namespace,
    }
    signed = {"key_id": signer.key_id, "signature": signer.sign(claim)}
    return {"event": "resolved", "evidence": proof, "resolution": {**claim, **signed}}


def defect(line: Line, id: str, keyring: Keyring) -> str:
    """What is wrong with a line that says it is a resolution; empty if nothing."""
    claim = line.evidence.get("resolution")
    if not isinstance(claim, dict):
        return "the resolution is not signed"
    claim = dict(claim)
    key_id, signature = str(claim.pop("key_id", "")), str(claim.pop("signature", ""))
    named = (claim.get("purpose"), claim.get("action_id"), claim.get("to"))
    if named != (_PURPOSE, id, line.to_state) or line.to_state not in RESOLUTIONS:
        return "the resolution is of something else"
    problem = keyring.defect(claim, key_id, signature)
    return f"the resolution: {problem}" if problem else ""


def closed_by_hand(stored: Stored, keyring: Keyring) -> State | None:
    """Where a person took an action, if the last that happened to it is their signed decision."""
    line = last_line(stored)
    if line is None or line.event != "resolved" or defect(line, stored.id, keyring):
        return None
    as_stored = (stored.fields.get("state"), stored.fields.get("head"))
    return State(line.to_state) if as_stored == (line.to_state, line.hash) else None
