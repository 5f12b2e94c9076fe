"""The story of an action, each ending told once. Read this first.

A bank deposit is proposed, approved, done and looked at; then everything that can go wrong with it
does. The bank (`tests/targets.py`) keeps a ledger of its own, so "it happened once" is its word.
"""

import json

import pytest

from tallystick import State
from tallystick.core.errors import (
    ApproverNotAllowed,
    IllegalMove,
    KeyConflict,
    WrongAnswer,
)
from tests.driving import TEN, Clock, alerts, nothing_stored, opened, until_rest
from tests.targets import (
    BY_HAND,
    COMPENSATED,
    DEPOSIT,
    FOR_EVER,
    RESTORE,
    RUNBOOK,
    TWO,
    Trouble,
)

# --- the straight way ----------------------------------------------------------------------------


def test_an_approved_action_is_done_once_and_committed_on_what_a_look_shows() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    assert bank.effects() == 0

    done = bench.run(id)

    assert done.state is State.COMMITTED
    assert bank.effects() == 1
    assert done.verdict == {"answer": "holds", "expected": "110", "observed": "110"}
    assert bench.events(id) == ["proposed", "vote", "claimed", "intent", "replied", "verified"]
    assert bench.alerts() == []


def test_a_committed_action_is_not_done_again_by_a_second_wake_up() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    assert bench.run(id).state is State.COMMITTED
    assert bank.effects() == 1


# --- nothing happens -----------------------------------------------------------------------------


def test_a_proposal_that_nobody_approved_is_not_done() -> None:
    bank, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    assert bench.run(id).state is State.WAITING_FOR_APPROVAL
    assert bank.calls == []


def test_a_rejected_proposal_is_never_done() -> None:
    bank, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    bench.tally.reject(id, by="approver", reason="too much")
    assert bench.run(id).state is State.REJECTED
    assert bank.calls == []


def test_an_approved_action_can_be_cancelled_until_it_begins() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    assert bench.tally.cancel(id, by="producer", reason="not needed").state is State.CANCELLED
    assert bench.run(id).state is State.CANCELLED
    assert bank.calls == []


def test_a_time_out_never_approves(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    bank, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    clock.pass_by(seconds=24 * 3600 + 1)
    assert bench.run(id).state is State.EXPIRED
    assert bank.calls == []


def test_an_approval_that_was_left_lying_expires_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    clock.pass_by(seconds=24 * 3600 + 1)
    assert bench.run(id).state is State.EXPIRED
    assert bank.calls == []


def test_an_action_whose_world_moved_on_since_the_approval_is_not_done() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bank.meddle()
    found = bench.run(id)
    assert found.state is State.PRECONDITION_FAILED
    assert "moved on" in found.why
    assert bank.calls == []


def test_a_definite_refusal_by_the_target_is_failed_and_calls_a_person() -> None:
    bank, bench = opened()
    bank.troubles = [Trouble.REFUSES]
    id = bench.approved(DEPOSIT, TEN)
    found = bench.run(id)
    assert found.state is State.FAILED
    assert "the account is closed" in found.why
    assert alerts(bench, id) == ["not_applied"]
    assert bank.effects() == 0


# --- the worker dies -----------------------------------------------------------------------------


@pytest.mark.parametrize("protection", ["keyed", "versioned", "fenced", "readable"])
def test_a_second_worker_commits_when_the_effect_is_already_there(protection: str) -> None:
    bank, bench = opened(protection)
    id = bench.approved(DEPOSIT, TEN)
    assert bench.crash(id, "after_effect").state is State.RUNNING
    assert bench.run(id).state is State.COMMITTED
    assert bank.effects() == 1


@pytest.mark.parametrize("protection", ["keyed", "versioned", "fenced"])
def test_a_second_worker_sends_again_where_the_target_refuses_doubles(protection: str) -> None:
    bank, bench = opened(protection)
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "before_effect")
    assert bank.effects() == 0
    found = bench.run(id)
    assert (found.state, found.attempts) == (State.COMMITTED, 2)
    assert bank.effects() == 1


@pytest.mark.parametrize("protection", ["readable", "blind"])
def test_a_second_worker_asks_a_person_where_a_late_effect_could_still_land(
    protection: str,
) -> None:
    bank, bench = opened(protection)
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "before_effect")
    assert bench.run(id).state is State.UNKNOWN
    assert alerts(bench, id) == ["outcome_unknown"]
    assert bank.calls == []


def test_a_person_resolves_what_nobody_could_know() -> None:
    bank, bench = opened("blind")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_effect")
    assert bench.run(id).state is State.UNKNOWN
    assert bank.effects() == 1

    found = bench.tally.resolve(id, to="committed", by="oncall", evidence="statement of today")

    assert found.state is State.COMMITTED
    assert found.why == "statement of today"
    assert bench.run(id).state is State.COMMITTED
    assert bank.effects() == 1


# --- it lands wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", ["keyed", "versioned", "fenced", "readable"])
def test_a_wrong_effect_is_undone_in_band_and_looked_at_again(protection: str) -> None:
    bank, bench = opened(protection)
    bank.troubles = [Trouble.LANDS_WRONG]
    id = bench.approved(DEPOSIT, TEN)

    found = bench.run(id)

    assert found.state is State.ROLLED_BACK
    assert bank.balance() == 100
    assert (bank.effects(DEPOSIT), bank.effects(RESTORE)) == (1, 1)
    assert alerts(bench, id) == ["verification_failed"]


@pytest.mark.parametrize("protection", ["keyed", "versioned", "fenced", "readable"])
def test_a_wrong_effect_is_undone_by_a_second_action_that_was_approved_with_it(
    protection: str,
) -> None:
    bank, bench = opened(protection, rollback=COMPENSATED)
    bank.troubles = [Trouble.LANDS_WRONG]
    id = bench.approved(DEPOSIT, TEN)

    found = bench.run(id)

    child = bench.tally.get(found.rollback["compensation"])
    assert (found.state, child.state) == (State.ROLLED_BACK, State.COMMITTED)
    assert child.compensates == id
    assert bank.balance() == 100
    assert (bank.effects(DEPOSIT), bank.effects(RESTORE)) == (1, 1)


def test_a_rollback_that_fails_calls_a_person_and_claims_nothing() -> None:
    bank, bench = opened()
    bank.troubles = [Trouble.LANDS_WRONG, Trouble.REFUSES]
    id = bench.approved(DEPOSIT, TEN)
    found = bench.run(id)
    assert found.state is State.ROLLBACK_FAILED
    assert alerts(bench, id) == ["verification_failed", "rollback_failed"]
    assert bank.balance() == 111


def test_a_rollback_that_lands_wrong_is_not_called_rolled_back() -> None:
    bank, bench = opened()
    bank.troubles = [Trouble.LANDS_WRONG, Trouble.LANDS_WRONG]
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state is State.ROLLBACK_FAILED
    assert bank.balance() == 101


def test_a_wrong_effect_that_only_people_can_undo_calls_them_with_the_runbook() -> None:
    bank, bench = opened(rollback=BY_HAND)
    bank.troubles = [Trouble.LANDS_WRONG]
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state is State.UNKNOWN
    (alert,) = [json.loads(text) for text in bench.alerts()]
    assert (alert["reason"], alert["runbook"]) == ("verification_failed", RUNBOOK)
    assert bank.effects(RESTORE) == 0


def test_a_target_that_says_yes_and_does_nothing_is_not_committed() -> None:
    bank, bench = opened()
    bank.troubles = [Trouble.DOES_NOTHING]
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state is State.UNKNOWN
    assert bank.effects() == 0


def test_what_somebody_else_did_is_not_undone_as_if_it_were_ours() -> None:
    bank, bench = opened("fenced")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "before_effect")
    bank.meddle(amount=7)
    until_rest(bench, id)
    assert bank.balance() == 107
    assert bank.effects(RESTORE) == 0


def test_what_changed_between_the_answer_and_the_recovery_is_not_undone() -> None:
    """Undoing is for the worker that acted and saw it land wrong, not for one that comes later."""
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_reply")
    bank.meddle(amount=7)
    assert until_rest(bench, id).state is State.UNKNOWN
    assert bank.balance() == 117
    assert bank.effects(RESTORE) == 0


def test_a_fence_that_one_action_raised_does_not_lock_out_the_next() -> None:
    bank, bench = opened("fenced")
    first = bench.approved(DEPOSIT, TEN)
    bench.crash(first, "before_effect")
    assert bench.run(first).state is State.COMMITTED

    second = bench.approved(DEPOSIT, TEN)

    assert bench.run(second).state is State.COMMITTED
    assert bank.effects() == 2


# --- keys ----------------------------------------------------------------------------------------


def test_the_same_key_with_the_same_content_is_the_same_action() -> None:
    _, bench = opened()
    one = bench.propose(DEPOSIT, TEN, key="invoice-7")
    again = bench.propose(DEPOSIT, TEN, key="invoice-7", by="another producer")
    assert again == one
    assert len(bench.tally.list()) == 1


def test_the_same_key_with_other_content_is_refused_and_names_both_digests() -> None:
    _, bench = opened()
    one = bench.propose(DEPOSIT, TEN, key="invoice-7")
    with nothing_stored(bench), pytest.raises(KeyConflict) as conflict:
        bench.propose(DEPOSIT, {**TEN, "amount": "11"}, key="invoice-7")
    facts = conflict.value.facts
    assert facts["id"] == one.id
    assert facts["stored"] != facts["offered"]
    assert facts["stored"] in str(conflict.value)
    assert facts["offered"] in str(conflict.value)


# --- people --------------------------------------------------------------------------------------


def test_an_irreversible_action_is_approved_by_typing_back_what_it_does() -> None:
    _, bench = opened(rollback=FOR_EVER)
    waiting = bench.propose(DEPOSIT, TEN)
    assert waiting.challenge == "alice 10"
    for wrong in (None, "", "alice 100", "alice 10 "):
        with nothing_stored(bench), pytest.raises(WrongAnswer, match="alice 10"):
            bench.tally.approve(waiting.id, by="approver", answer=wrong)

    bench.tally.approve(waiting.id, by="approver", answer="alice 10")

    assert bench.run(waiting.id).state is State.COMMITTED


def test_an_irreversible_action_that_landed_wrong_goes_to_a_person_at_once() -> None:
    bank, bench = opened(rollback=FOR_EVER)
    bank.troubles = [Trouble.LANDS_WRONG]
    id = bench.approved(DEPOSIT, TEN)
    found = bench.run(id)
    assert found.state is State.UNKNOWN
    assert "cannot be undone" in found.why
    assert alerts(bench, id) == ["verification_failed"]


def test_a_quorum_of_two_needs_two_people() -> None:
    bank, bench = opened(policy=TWO)
    id = bench.propose(DEPOSIT, TEN).id
    assert bench.tally.approve(id, by="anna").state is State.WAITING_FOR_APPROVAL
    assert bench.tally.approve(id, by="anna").state is State.WAITING_FOR_APPROVAL
    with pytest.raises(ApproverNotAllowed):
        bench.tally.approve(id, by="ANNA ")
    assert bench.run(id).state is State.WAITING_FOR_APPROVAL
    assert bench.tally.approve(id, by="ben").state is State.APPROVED
    assert bench.run(id).state is State.COMMITTED
    assert bank.effects() == 1


def test_the_proposer_may_not_approve() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN, by="anna").id
    with nothing_stored(bench), pytest.raises(ApproverNotAllowed, match="separation of duties"):
        bench.tally.approve(id, by="anna")


def test_what_is_decided_is_not_decided_again() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    bench.tally.reject(id, by="anna", reason="no")
    with nothing_stored(bench), pytest.raises(IllegalMove, match="decided by anna"):
        bench.tally.approve(id, by="ben")
