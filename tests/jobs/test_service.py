"""What producers, approvers and on-call engineers call, also when two of them call at once."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tallystick import Policy, State
from tallystick.approvals import Keyring, Signer
from tallystick.core.errors import (
    ApproverNotAllowed,
    Conflict,
    IllegalMove,
    KeyConflict,
    WaitTimeout,
)
from tallystick.jobs.record import Stored
from tallystick.jobs.store import Store
from tallystick.jobs.witness import Tail
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.driving import (
    TEN,
    Clock,
    alerts,
    counted,
    key_space,
    nothing_stored,
    opened,
    record_of,
    redis_of,
)
from tests.targets import DEPOSIT, TWO, Bank, Trouble, deposit, with_method

# --- two at once ---------------------------------------------------------------------------------


class Interleaved(Store):
    """A real store in which somebody else acts between the next reading and what follows it."""

    meanwhile: Callable[[], object] | None = None

    def read(self, id: str, seen: Tail | None = None) -> Stored:
        stored = super().read(id, seen)
        if self.meanwhile:
            act, self.meanwhile = self.meanwhile, None
            act()
        return stored


def interleaved(bench: Bench, meanwhile: Callable[[], object]) -> None:
    """Let this happen right after the next reading of an action by `bench.tally`."""
    store = Interleaved(bench.redis, bench.settings.namespace)
    store.meanwhile = meanwhile
    bench.tally.store = store


def beside(bench: Bench) -> Bench:
    """Another process on the same store, with the same key and types."""
    other = Bench(*[type(spec) for spec in bench.tally.registry])
    other.redis = bench.redis
    other.tally.store = Store(bench.redis, bench.settings.namespace)
    other.tally.signer, other.tally.keyring = bench.tally.signer, bench.tally.keyring
    return other


def test_of_a_yes_and_a_no_at_once_the_first_one_stored_wins() -> None:
    _, bench = opened()
    other = beside(bench)
    id = bench.propose(DEPOSIT, TEN).id
    interleaved(bench, lambda: other.tally.reject(id, by="ben", reason="no"))
    with pytest.raises(IllegalMove, match="decided by ben"):
        bench.tally.approve(id, by="anna")
    assert other.state(id) is State.REJECTED


def test_of_a_no_and_a_yes_at_once_the_first_one_stored_wins() -> None:
    _, bench = opened()
    other = beside(bench)
    id = bench.propose(DEPOSIT, TEN).id
    interleaved(bench, lambda: other.tally.approve(id, by="ben"))
    with pytest.raises(IllegalMove, match="decided by ben"):
        bench.tally.reject(id, by="anna", reason="no")
    assert other.state(id) is State.APPROVED


def test_two_approvals_at_once_make_a_quorum_of_two() -> None:
    _, bench = opened(policy=TWO)
    other = beside(bench)
    id = bench.propose(DEPOSIT, TEN).id
    interleaved(bench, lambda: other.tally.approve(id, by="ben"))
    assert bench.tally.approve(id, by="anna").state is State.APPROVED
    assert {vote.who for vote in record_of(other, id).votes} == {"anna", "ben"}


def test_a_vote_is_not_turned_away_however_many_others_come_first() -> None:
    _, bench = opened(policy=Policy(quorum=31))
    other = beside(bench)
    id = bench.propose(DEPOSIT, TEN).id
    others = iter(range(30))

    class Crowded(Store):
        def read(self, id: str, seen: Tail | None = None) -> Stored:
            stored = super().read(id, seen)
            for number in others:
                other.tally.approve(id, by=f"other-{number}")
                break
            return stored

    bench.tally.store = Crowded(bench.redis, bench.settings.namespace)
    assert bench.tally.approve(id, by="anna").state is State.APPROVED
    assert len(record_of(other, id).votes) == 31


def test_the_same_person_approving_twice_at_once_is_one_vote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    _, bench = opened(policy=TWO)
    other = beside(bench)
    id = bench.propose(DEPOSIT, TEN).id

    def a_moment_later() -> None:
        clock.pass_by(seconds=1)
        other.tally.approve(id, by="anna")

    interleaved(bench, a_moment_later)
    assert bench.tally.approve(id, by="anna").state is State.WAITING_FOR_APPROVAL
    assert len(record_of(other, id).votes) == 1


def test_an_approval_loses_against_a_cancellation_that_came_first() -> None:
    _, bench = opened()
    other = beside(bench)
    id = bench.propose(DEPOSIT, TEN).id
    interleaved(bench, lambda: other.tally.cancel(id, by="producer"))
    with pytest.raises(IllegalMove):
        bench.tally.approve(id, by="anna")
    assert other.state(id) is State.CANCELLED


def test_a_cancellation_that_comes_after_the_claim_and_before_the_intent_stops_the_effect() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_claim")
    claimed = record_of(bench, id)
    bench.tally.cancel(id, by="producer")
    with pytest.raises(Conflict):
        bench.tally.store.move(claimed, State.RUNNING, who="w", evidence={"event": "intent"})
    assert bench.run(id).state is State.CANCELLED
    assert bank.calls == []


def test_a_worker_whose_action_is_cancelled_under_its_hands_sends_nothing() -> None:
    bank = Bank()
    cancelled: list[str] = []

    def observe(self: object, params: object) -> object:
        if cancelled:
            bench.tally.cancel(cancelled.pop(), by="producer")
        return bank.read("alice")

    bench = Bench(with_method(deposit(bank), "observe", observe))
    id = bench.approved(DEPOSIT, TEN)
    cancelled.append(id)
    assert bench.run(id).state is State.CANCELLED
    assert bank.calls == []


def test_a_note_that_comes_between_does_not_stop_a_run() -> None:
    bank = Bank()
    noted: list[str] = []

    def execute(self: object, params: object, context: object) -> object:
        bench.tally.acknowledge(noted.pop(), by="oncall")
        return plain.execute(params, context)  # type: ignore[arg-type]

    kind = deposit(bank)
    plain = kind()
    bench = Bench(with_method(kind, "execute", execute))
    id = bench.approved(DEPOSIT, TEN)
    noted.append(id)
    assert bench.run(id).state is State.COMMITTED
    assert bank.effects() == 1
    assert "acknowledged" in bench.events(id)


def test_two_proposals_under_one_key_at_once_are_one_action() -> None:
    bank = Bank()
    first: list[str] = []

    def observe(self: object, params: object) -> object:
        if not first:
            first.append("")
            first.append(other.propose(DEPOSIT, TEN, key="k").id)
        return bank.read("alice")

    bench = Bench(with_method(deposit(bank), "observe", observe))
    other = beside(bench)
    assert bench.propose(DEPOSIT, TEN, key="k").id == first[1]
    assert len(bench.tally.list()) == 1


def test_two_proposals_of_other_content_under_one_key_at_once_are_a_conflict() -> None:
    bank = Bank()
    begun: list[str] = []

    def observe(self: object, params: object) -> object:
        if not begun:
            begun.append("")
            other.propose(DEPOSIT, {**TEN, "amount": "11"}, key="k")
        return bank.read("alice")

    bench = Bench(with_method(deposit(bank), "observe", observe))
    other = beside(bench)
    with pytest.raises(KeyConflict):
        bench.propose(DEPOSIT, TEN, key="k")
    assert len(bench.tally.list()) == 1


# --- the same call again -------------------------------------------------------------------------


def test_an_approval_repeated_changes_nothing() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    once = bench.tally.approve(id, by="anna")
    with nothing_stored(bench):
        assert bench.tally.approve(id, by="anna") == once


def test_a_rejection_repeated_changes_nothing() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    once = bench.tally.reject(id, by="anna", reason="no")
    with nothing_stored(bench):
        assert bench.tally.reject(id, by="anna", reason="no") == once


def test_a_cancellation_repeated_changes_nothing() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    once = bench.tally.cancel(id, by="anna")
    with nothing_stored(bench):
        assert bench.tally.cancel(id, by="anna") == once


def test_a_resolution_repeated_changes_nothing() -> None:
    """The reply to the first call may have been lost: "the same call may be repeated"."""
    _, bench = opened("blind")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "before_effect")
    bench.run(id)
    once = bench.tally.resolve(id, to="abandoned", by="eve", evidence="seen")
    with nothing_stored(bench):
        assert bench.tally.resolve(id, to="abandoned", by="eve", evidence="seen") == once


def test_a_proposal_repeated_is_counted_as_a_replay() -> None:
    _, bench = opened()
    bench.propose(DEPOSIT, TEN, key="k")
    bench.propose(DEPOSIT, TEN, key="k")
    assert counted(bench)[counters.replay(DEPOSIT)] == 1


def test_a_repeated_proposal_finds_its_action_in_whatever_state_it_is() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN, key="k")
    bench.run(id)
    bank.unreadable = True
    assert bench.propose(DEPOSIT, TEN, key="k").id == id


# --- voting --------------------------------------------------------------------------------------


def test_one_no_is_enough_even_after_a_yes() -> None:
    _, bench = opened(policy=TWO)
    id = bench.propose(DEPOSIT, TEN).id
    bench.tally.approve(id, by="anna")
    assert bench.tally.reject(id, by="ben", reason="no").state is State.REJECTED


def test_the_proposer_may_withdraw_by_a_no() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN, by="anna").id
    assert bench.tally.reject(id, by="anna", reason="changed my mind").state is State.REJECTED


def test_the_proposer_may_approve_where_the_policy_says_so() -> None:
    _, bench = opened(policy=Policy(proposer_may_approve=True))
    id = bench.propose(DEPOSIT, TEN, by="anna").id
    assert bench.tally.approve(id, by="anna").state is State.APPROVED


def test_an_approval_shows_who_when_and_with_which_key() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    (vote,) = bench.tally.approve(id, by="anna").approvals
    assert bench.tally.signer
    assert (vote.who, vote.decision, vote.answer) == ("anna", "approve", None)
    assert vote.key_id == bench.tally.signer.key_id
    assert vote.at.endswith("Z")


def test_a_key_that_nobody_trusts_signs_no_vote() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    bench.tally.signer = Signer.generate()
    with nothing_stored(bench), pytest.raises(ApproverNotAllowed, match="unknown key"):
        bench.tally.approve(id, by="anna")


def test_a_key_that_is_revoked_stops_what_it_approved_until_it_is_trusted_again() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    trusted, bench.tally.keyring = bench.tally.keyring, Keyring({})
    assert bench.run(id).state is State.APPROVED
    assert bank.calls == []
    bench.tally.keyring = trusted
    assert bench.run(id).state is State.COMMITTED


def test_a_policy_that_became_stricter_asks_for_a_new_proposal() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    stricter = beside(Bench(deposit(bank, policy=TWO)))
    stricter.tally.store, stricter.tally.keyring = bench.tally.store, bench.tally.keyring
    found = stricter.run(id)
    assert found.state is State.PRECONDITION_FAILED
    assert "2 approvals" in found.why
    assert bank.calls == []


def test_a_policy_that_forbids_the_proposer_by_now_asks_for_a_new_proposal() -> None:
    bank, bench = opened(policy=Policy(proposer_may_approve=True))
    id = bench.propose(DEPOSIT, TEN, by="anna").id
    bench.tally.approve(id, by="Anna")
    stricter = Bench(deposit(bank))
    stricter.tally.store, stricter.tally.keyring = bench.tally.store, bench.tally.keyring
    found = stricter.run(id)
    assert found.state is State.PRECONDITION_FAILED
    assert "the proposer may not approve any more" in found.why
    assert bank.calls == []


# --- time ----------------------------------------------------------------------------------------


def test_the_window_counts_from_the_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    _, bench = opened(policy=Policy(expires_after=timedelta(seconds=60)))
    id = bench.propose(DEPOSIT, TEN).id
    clock.pass_by(seconds=59)
    assert bench.tally.approve(id, by="anna").state is State.APPROVED
    clock.pass_by(seconds=2)
    assert bench.run(id).state is State.EXPIRED


def test_what_has_begun_does_not_expire_before_it_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    bank, bench = opened(policy=Policy(expires_after=timedelta(seconds=60)))
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_effect")
    clock.pass_by(seconds=61)
    assert bench.run(id).state is State.COMMITTED
    assert bank.effects() == 1


@pytest.mark.parametrize("protection", ["keyed", "versioned", "fenced"])
def test_nothing_is_sent_again_after_the_approval_has_expired(
    protection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    bank, bench = opened(protection, policy=Policy(expires_after=timedelta(seconds=60)))
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "before_effect")
    clock.pass_by(seconds=61)
    found = bench.run(id)
    assert found.state is (State.FAILED if protection == "fenced" else State.UNKNOWN)
    assert bank.calls == []


@pytest.mark.parametrize("seconds", [0.5, 1.5])
def test_a_window_keeps_its_fractions_of_a_second(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    _, bench = opened(policy=Policy(expires_after=timedelta(seconds=seconds)))
    id = bench.propose(DEPOSIT, TEN).id
    assert bench.state(id) is State.WAITING_FOR_APPROVAL
    assert bench.tally.approve(id, by="anna").state is State.APPROVED
    clock.pass_by(seconds=seconds)
    assert bench.run(id).state is State.EXPIRED


def test_waiting_ends_at_its_time_out_and_says_how_to_go_on() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    with pytest.raises(WaitTimeout, match=f"waiting_for_approval after 0 s.*tallystick wait {id}"):
        bench.tally.wait(id, timeout=0)


def test_waiting_for_what_is_at_rest_answers_at_once() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    assert bench.tally.wait(id, timeout=0).state is State.COMMITTED


def test_waiting_ends_when_a_person_is_needed() -> None:
    _, bench = opened("blind")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "before_effect")
    bench.run(id)
    assert bench.tally.wait(id, timeout=0).state is State.UNKNOWN


# --- on call -------------------------------------------------------------------------------------


def attention(bench: Bench, id: str) -> str | None:
    found = redis_of(bench).hget(bench.tally.store.keys.attention, id)
    return None if found is None else str(found)


def test_a_failure_is_open_until_somebody_takes_note() -> None:
    bank, bench = opened()
    bank.troubles = [Trouble.LANDS_WRONG]
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    field = counters.attention(DEPOSIT, "verification_failed")
    assert attention(bench, id) == field
    assert counted(bench)[field] == 1

    found = bench.tally.acknowledge(id, by="oncall")

    assert found.state is State.ROLLED_BACK
    assert attention(bench, id) is None
    assert counted(bench)[field] == 0
    assert bench.events(id)[-1] == "acknowledged"


def test_taking_note_twice_counts_once() -> None:
    bank, bench = opened()
    bank.troubles = [Trouble.LANDS_WRONG]
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    bench.tally.acknowledge(id, by="oncall")
    bench.tally.acknowledge(id, by="oncall")
    assert counted(bench)[counters.attention(DEPOSIT, "verification_failed")] == 0


def test_taking_note_does_not_take_a_lease_away() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    claimed = bench.tally.store.claim(record_of(bench, id), worker="w", lease_ms=60_000)
    bench.tally.acknowledge(id, by="oncall")
    assert redis_of(bench).get(bench.tally.store.keys.lease(id)) == claimed.owner
    moved = bench.tally.store.move(
        claimed, State.RUNNING, who="w", evidence={"event": "intent"}, lease="hold", lease_ms=1000
    )
    assert moved.state is State.RUNNING
    assert bank.calls == []


def test_a_resolution_is_signed_and_ends_the_alert() -> None:
    _, bench = opened("blind")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_effect")
    bench.run(id)
    assert attention(bench, id)

    bench.tally.resolve(id, to="committed", by="eve", evidence="the statement shows it")

    line = record_of(bench, id).lines[-1]
    claim: Any = dict(line.evidence)["resolution"]
    key_id, signature = claim.pop("key_id"), claim.pop("signature")
    assert bench.tally.keyring.defect(claim, key_id, signature) == ""
    assert (claim["who"], claim["to"], claim["action_id"]) == ("eve", "committed", id)
    assert attention(bench, id) is None


def test_an_alert_says_what_happened_and_what_to_look_at() -> None:
    _, bench = opened("blind")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_effect")
    bench.run(id)
    (alert,) = [json.loads(text) for text in bench.alerts()]
    assert alert == {
        "id": id,
        "action": DEPOSIT,
        "seq": len(bench.events(id)),
        "state": "unknown",
        "reason": "outcome_unknown",
        "event": "halted",
        "why": "it may have happened, or may still happen",
        "runbook": None,
        "next": f"tallystick show {id}",
    }


# --- lists and histories -------------------------------------------------------------------------


def test_a_list_shows_the_newest_first_and_not_more_than_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    _, bench = opened()
    ids = []
    for _ in range(4):
        ids.append(bench.propose(DEPOSIT, TEN).id)
        clock.pass_by(seconds=1)
    assert [found.id for found in bench.tally.list()] == ids[::-1]
    assert [found.id for found in bench.tally.list(limit=2)] == [ids[3], ids[2]]
    assert list(bench.tally.list(limit=0)) == []


def test_a_list_of_one_state_shows_no_other() -> None:
    _, bench = opened()
    waiting, approved = bench.propose(DEPOSIT, TEN).id, bench.approved(DEPOSIT, TEN)
    assert [found.id for found in bench.tally.list("approved")] == [approved]
    assert [found.id for found in bench.tally.list("waiting_for_approval")] == [waiting]
    assert list(bench.tally.list("committed")) == []


def test_a_list_of_what_needs_attention_shows_what_nobody_took_note_of() -> None:
    bank, bench = opened()
    bank.troubles = [Trouble.LANDS_WRONG, Trouble.REFUSES, Trouble.LANDS_WRONG, Trouble.REFUSES]
    ids = [bench.approved(DEPOSIT, {**TEN, "account": name}) for name in ("a", "b")]
    fine = bench.approved(DEPOSIT, {**TEN, "account": "c"})
    for id in (*ids, fine):
        bench.run(id)
    assert sorted(found.id for found in bench.tally.list(attention=True)) == sorted(ids)
    bench.tally.acknowledge(ids[0], by="oncall")
    assert [found.id for found in bench.tally.list(attention=True)] == [ids[1]]
    assert list(bench.tally.list("committed", attention=True)) == []


def test_a_history_shows_every_line_chained_to_the_one_before() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    lines = bench.tally.history(id)
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
    assert [line.prev for line in lines[1:]] == [line.hash for line in lines[:-1]]
    assert [line.from_state for line in lines[1:]] == [line.to_state for line in lines[:-1]]
    assert lines[-1].to_state == "committed"


def test_what_is_shown_can_be_written_as_json_and_read_back() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    found = bench.run(id)
    assert type(found).model_validate_json(found.model_dump_json()) == found


def test_looking_changes_nothing() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    before = key_space(bench)
    bench.tally.get(id)
    bench.tally.list()
    bench.tally.history(id)
    bench.tally.store.snapshot()
    assert key_space(bench) == before


# --- the stop switch -----------------------------------------------------------------------------


@pytest.mark.parametrize("action", [None, DEPOSIT])
def test_a_stop_lets_no_new_intent_begin_until_a_start(action: str | None) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.tally.stop(by="oncall", reason="the bank is odd", action=action)
    assert bench.run(id).state is State.APPROVED
    assert bank.calls == []
    bench.tally.start(by="oncall", action=action)
    assert bench.run(id).state is State.COMMITTED


def test_a_stop_of_another_type_stops_nothing() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.tally.stop(by="oncall", reason="x", action="other.type")
    assert bench.run(id).state is State.COMMITTED
    assert bank.effects() == 1


def test_a_stop_does_not_stop_what_undoes() -> None:
    bank, bench = opened()
    bank.troubles = [Trouble.LANDS_WRONG]
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_rollback_intent")
    bench.tally.stop(by="oncall", reason="x")
    assert bench.run(id).state is State.ROLLED_BACK
    assert alerts(bench, id) == ["verification_failed"]
