"""Approvals that went astray: to another action, for another content, by default, or twice."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tallystick import Policy, State, Verdict
from tallystick.approvals import Keyring
from tallystick.core.errors import ActionExpired, IllegalMove, UnknownId
from tallystick.jobs.states import NEXT
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.cases.actions import begin, end
from tests.driving import TEN, Clock, alerts, counted, nothing_stored, opened, record_of
from tests.forging import found_corrupt, steps_of, stored, with_vote
from tests.server import actions
from tests.server.conftest import Site, eventually
from tests.targets import DEPOSIT, RESTORE, Bank, deposit, with_method


def test_a_cancellation_of_what_does_not_exist_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Case 15: an id is cancelled that is given to an action only later."""
    bank, bench = opened()
    id = "0123456789abcdef"
    for refuse in (bench.tally.cancel, bench.tally.approve):
        with nothing_stored(bench), pytest.raises(UnknownId):
            refuse(id, by="anna")
    with nothing_stored(bench), pytest.raises(UnknownId):
        bench.tally.reject(id, by="anna", reason="no")
    monkeypatch.setattr("tallystick.jobs.proposal.secrets.token_hex", lambda _: id)
    assert bench.approved(DEPOSIT, TEN) == id
    assert bench.run(id).state is State.COMMITTED
    assert bank.effects() == 1


def test_of_two_pending_actions_the_one_that_was_named_is_approved() -> None:
    """Case 29: two actions of one run wait, alike in everything but what they do."""
    bank, bench = opened()
    one = bench.propose(DEPOSIT, {"account": "alice", "amount": "10"}).id
    other = bench.propose(DEPOSIT, {"account": "bob", "amount": "10"}).id
    bench.tally.approve(other, by="anna")
    bench.run(one)
    assert bench.run(other).state is State.COMMITTED
    assert bench.state(one) is State.WAITING_FOR_APPROVAL
    assert [done.account for done in bank.ledger] == ["bob"]


@pytest.mark.server
def test_of_a_yes_and_a_no_at_once_one_counts_and_the_other_hears_of_it(site: Site) -> None:
    """Case 31: approved and rejected at the same time, twenty times over."""
    params = {"item": "x", "value": "new"}
    ids = [
        site.tally.propose("item.readable", params, key=f"k{number}", by="producer").id
        for number in range(20)
    ]

    def told(decide: Callable[[], Any]) -> str:
        try:
            return str(decide().state)
        except IllegalMove as refused:
            return str(refused)

    with ThreadPoolExecutor(40) as threads:
        yes = [
            threads.submit(told, lambda id=id: site.tally.approve(id, by="anna"))  # type: ignore[misc]
            for id in ids
        ]
        no = [
            threads.submit(told, lambda id=id: site.tally.reject(id, by="ben", reason="no"))  # type: ignore[misc]
            for id in ids
        ]
    for id, said_yes, said_no in zip(ids, yes, no, strict=True):
        state = site.tally.get(id).state
        winner, loser = (said_yes, said_no) if state == "approved" else (said_no, said_yes)
        assert winner.result() == state
        assert f"decided by {'anna' if state == 'approved' else 'ben'}" in loser.result()
        assert len(site.tally.get(id).approvals) == 1


OTHERS: list[dict[str, Any]] = [
    {"params": {"account": "alice", "amount": "1000"}},
    {"action": RESTORE},
    {"version": 2},
    {"observed": {"balance": "0"}},
    {"protection": "keyed"},
    {"namespace": "production"},
    {"policy": {"quorum": 1, "proposer_may_approve": True, "expires_after_ms": 1000}},
    {"rollback": {"kind": "out_of_band", "runbook": "x"}},
    {"expires_at": 2**52},
]
"""Other content, tool, code, world, target, environment, policy, way back, time."""


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: next(iter(other)))
def test_an_approval_covers_nothing_but_what_was_approved(other: dict[str, Any]) -> None:
    """Case 35: one thing is changed in Redis between approval and run; every hash is mended."""
    bank, bench = opened()
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    stored(bench, replace(record.content, **other), steps_of(record))
    found_corrupt(bench, bank, record.id)
    assert counted(bench)[counters.security_event("corrupt_record")] == 1


@pytest.mark.parametrize("policy", [Policy(), Policy(expires_after=timedelta(seconds=5))])
def test_nobody_s_answer_is_no_yes(monkeypatch: pytest.MonkeyPatch, policy: Policy) -> None:
    """Case 37: nobody answers, with a window of its own and with none configured."""
    clock = Clock(monkeypatch)
    bank, bench = opened(policy=policy)
    id = bench.propose(DEPOSIT, TEN).id
    clock.pass_by(policy.expires_after.total_seconds() + 1)
    assert bench.run(id).state is State.EXPIRED
    with pytest.raises(IllegalMove):
        bench.tally.approve(id, by="anna")
    assert bench.run(id).state is State.EXPIRED
    assert bank.calls == []
    assert NEXT[State.EXPIRED] == {State.CORRUPT}


def test_a_late_yes_is_no_yes_although_no_worker_has_said_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Case 37: the window is over, and no worker ran to close it."""
    clock = Clock(monkeypatch)
    bank, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    clock.pass_by(24 * 3600 + 1)
    with pytest.raises(ActionExpired):
        bench.tally.approve(id, by="anna")
    assert bench.run(id).state is State.EXPIRED
    assert bank.calls == []


def _broken(*given: object) -> Verdict:
    raise RuntimeError("the check itself is broken")


@pytest.mark.parametrize("check", ["precondition", "observe"])
def test_a_check_that_breaks_before_the_effect_lets_nothing_pass(check: str) -> None:
    """Case 102: the check ends in an error instead of an answer."""
    bank = Bank()
    broken: list[bool] = []
    kind = deposit(bank)

    def method(self: Any, *given: Any) -> Any:
        return _broken() if broken else getattr(kind(), check)(*given)

    bench = Bench(with_method(kind, check, method))
    id = bench.approved(DEPOSIT, TEN)
    broken.append(True)
    for _ in range(3):
        assert bench.run(id).state is State.APPROVED
    assert bank.calls == []
    broken.clear()
    assert bench.run(id).state is State.COMMITTED


def test_a_check_that_breaks_after_the_effect_proves_nothing() -> None:
    """Case 102: nothing is committed, nor undone, on the error of a verification."""
    bank = Bank()
    bench = Bench(with_method(deposit(bank), "verify", _broken))
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state is State.UNKNOWN
    assert [done.kind for done in bank.ledger] == [DEPOSIT]
    assert alerts(bench, id) == ["outcome_unknown"]


def test_a_worker_that_cannot_check_votes_runs_nothing() -> None:
    """Case 102: the keys that votes are checked with are gone."""
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    trusted, bench.tally.keyring = bench.tally.keyring, Keyring({})
    assert bench.run(id).state is State.APPROVED
    assert bank.calls == []
    bench.tally.keyring = trusted
    assert bench.run(id).state is State.COMMITTED


@pytest.mark.server
def test_what_was_cancelled_has_no_effect_and_what_has_begun_is_not_called_cancelled(
    site: Site,
) -> None:
    """Case 106: cancelled while workers start them."""
    begin("slow", site.folder)
    ids = [site.approved("case.held", f"held-{number}") for number in range(8)]
    site.worker("--processes", "2")
    eventually(lambda: len(site.tally.list("running")) == 2, "two have begun")
    cancelled = []
    for id in ids:
        try:
            cancelled.append(site.tally.cancel(id, by="producer").id)
        except IllegalMove:
            continue
    end("slow", site.folder)
    begun = [id for id in ids if id not in cancelled]
    assert len(begun) == 2
    assert {site.at_rest(id) for id in begun} == {"committed"}
    assert {site.at_rest(id) for id in cancelled} == {"cancelled"}
    assert [actions.effects(f"held-{ids.index(id)}") for id in cancelled] == [0] * 6
    assert [actions.effects(f"held-{ids.index(id)}") for id in begun] == [1] * 2


def test_a_vote_counts_for_one_action_and_no_other_of_the_same_content() -> None:
    """Case 113: a recorded approval is played again, for a twin of what it was given for."""
    bank, bench = opened()
    approved = record_of(bench, bench.approved(DEPOSIT, TEN))
    twin = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    stored(bench, twin.content, with_vote(twin, approved.votes[0].as_json()))
    found_corrupt(bench, bank, twin.id)


def test_an_approval_is_used_up_by_what_it_allowed() -> None:
    """Case 113: a recorded approval is played again, for the same action after its end."""
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    with nothing_stored(bench):
        for _ in range(3):
            assert bench.run(id).state is State.COMMITTED
        assert bench.tally.approve(id, by="approver").state is State.COMMITTED
    assert bank.effects() == 1
