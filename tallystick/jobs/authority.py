"""Whether somebody who may has allowed exactly this, by what the store shows and the keys prove."""

from tallystick.approvals import Keyring, Outcome, tally
from tallystick.jobs.giving_up import check_deaths
from tallystick.jobs.record import Record, Tampered, UnknownKey
from tallystick.jobs.registry import Registry
from tallystick.jobs.states import CLOSED, HALTED, State
from tallystick.jobs.store import Store
from tallystick.jobs.undo import check_asked, parent_of


def check_authority(record: Record, store: Store, registry: Registry, keyring: Keyring) -> None:
    """Raise `Tampered` unless the action was approved, if it can still run; for a compensation,
    unless its parent was, and asks for just this. Raises `LeftAlone` if that cannot be judged here,
    and `KillsWorkers` before any code of its type is called that should not be any more."""
    content = record.content
    if content.namespace != store.keys.namespace:
        raise Tampered(f"it belongs to the namespace {content.namespace!r}")
    if record.state in {State.WAITING_FOR_APPROVAL, *CLOSED, *HALTED}:
        return
    check_deaths(record)
    approved = record
    if content.compensates is not None:
        approved = parent_of(store, record)
        check_asked(registry, approved, record)
    decision = tally(approved.content.ballot, approved.votes, keyring)
    if decision.outcome is Outcome.UNKNOWN_KEY:
        raise UnknownKey(decision.problem)
    if decision.outcome is not Outcome.APPROVED:
        raise Tampered(decision.problem or "it was never approved")
