"""A forger writes to Redis who mends every hash, but holds no approval key: nothing of it runs.

What people approved is what they signed. Content that no vote covers, votes that nobody cast and
compensations that nobody asked for are corrupt, and the bank's own ledger stays empty.
"""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tallystick import InBand, State
from tallystick.approvals import Signer
from tallystick.core import canonical
from tallystick.core.errors import ActionCorrupt, NewerRecord
from tallystick.jobs.proposal import rollback_key
from tallystick.jobs.record import Content
from tallystick.testing import Bench
from tests.driving import (
    TEN,
    lease_runs_out,
    nothing_stored,
    opened,
    record_of,
    redis_of,
    until_rest,
)
from tests.forging import (
    Step,
    action_key,
    found_corrupt,
    journal_key,
    put,
    steps_of,
    stored,
    vote_for,
    with_vote,
)
from tests.targets import COMPENSATED, DEPOSIT, RESTORE, TWO, Bank, Trouble, deposit, restore

# --- the content ---------------------------------------------------------------------------------


def altered(content: Content, **changed: Any) -> Content:
    return replace(content, **changed)


CHANGES: list[dict[str, Any]] = [
    {"params": {"account": "alice", "amount": "1000"}},
    {"params": {"account": "mallory", "amount": "10"}},
    {"action": RESTORE},
    {"version": 2},
    {"key": "another"},
    {"observed": {"balance": "0"}},
    {"protection": "keyed"},
    {"rollback": {"kind": "out_of_band", "runbook": "x"}},
    {"policy": {"quorum": 1, "proposer_may_approve": True, "expires_after_ms": 1}},
    {"challenge": "type this"},
    {"expires_at": 2**52},
    {"namespace": "elsewhere"},
    {"proposed_by": "nobody"},
    {"reason": "another"},
    {"compensates": "0123456789abcdef"},
]


@pytest.mark.parametrize("changed", CHANGES, ids=str)
def test_content_that_the_votes_do_not_cover_is_not_run(changed: dict[str, Any]) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    record = record_of(bench, id)
    stored(bench, altered(record.content, **changed), steps_of(record))
    found_corrupt(bench, bank, id)


@pytest.mark.parametrize(
    "changed",
    [
        {"expires_at": "never"},
        {"params": "none"},
        {"version": "1"},
        {"observed": "ok", "action": 5},
        {"policy": {"quorum": True, "proposer_may_approve": True, "expires_after_ms": 1}},
        {"policy": {"quorum": 0, "proposer_may_approve": True, "expires_after_ms": 1000}},
        {"policy": {}},
        {"policy": []},
    ],
    ids=str,
)
def test_a_proposal_of_wrong_types_is_corrupt_and_not_a_crash(changed: dict[str, Any]) -> None:
    bank, bench = opened()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    content = json.loads(record.content.sealed()[0]) | changed
    text = canonical.dumps(content).decode()
    digest = canonical.digest(text.encode())
    stored(bench, record.content, steps_of(record))
    line = replace(record.lines[0], evidence={"event": "proposed", "digest": digest})
    put(bench, record.id, [line], content=text, digest=digest)
    with pytest.raises(ActionCorrupt):
        bench.tally.approve(record.id, by="anna")
    found_corrupt(bench, bank, record.id)


def test_a_record_that_a_newer_version_wrote_is_left_alone_unharmed() -> None:
    bank, bench = opened()
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    stored(bench, altered(record.content, schema=99), steps_of(record))
    before = redis_of(bench).lrange(journal_key(bench, record.id), 0, -1)
    bench.run(record.id)
    with pytest.raises(NewerRecord):
        bench.tally.cancel(record.id, by="anna")
    assert redis_of(bench).lrange(journal_key(bench, record.id), 0, -1) == before
    assert bank.calls == []


@pytest.mark.parametrize("verb", ["resolve", "cancel", "approve"])
def test_nobody_settles_with_an_old_version_what_a_newer_one_wrote(verb: str) -> None:
    _, bench = opened()
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    corrupt: Step = (State.CORRUPT, {"event": "corrupt"})
    stored(bench, altered(record.content, schema=99), [*steps_of(record), corrupt])
    given = {"to": "abandoned", "evidence": "seen"} if verb == "resolve" else {}
    with nothing_stored(bench), pytest.raises(NewerRecord):
        getattr(bench.tally, verb)(record.id, by="anna", **given)


def test_content_swapped_between_two_actions_makes_both_corrupt() -> None:
    bank, bench = opened()
    one = bench.approved(DEPOSIT, TEN)
    two = bench.approved(DEPOSIT, {**TEN, "amount": "99"})
    for name in ("content", "digest"):
        first, second = (redis_of(bench).hget(action_key(bench, id), name) for id in (one, two))
        redis_of(bench).hset(action_key(bench, one), name, second)
        redis_of(bench).hset(action_key(bench, two), name, first)
    for id in (one, two):
        assert bench.run(id).state is State.CORRUPT
    assert bank.calls == []


def test_whole_records_swapped_between_two_actions_are_corrupt() -> None:
    bank, bench = opened()
    one = bench.approved(DEPOSIT, TEN)
    two = bench.propose(DEPOSIT, {**TEN, "amount": "99"}).id
    for key in (action_key, journal_key):
        redis_of(bench).delete(key(bench, two))
        redis_of(bench).copy(key(bench, one), key(bench, two))
    found_corrupt(bench, bank, two)


def test_a_record_of_another_namespace_is_corrupt() -> None:
    bank = Bank()
    production, stage = Bench(deposit(bank)), Bench(deposit(bank), namespace="stage")
    stage.tally.keyring = production.tally.keyring
    record = record_of(production, production.approved(DEPOSIT, TEN))
    stored(stage, record.content, steps_of(record))
    found_corrupt(stage, bank, record.id)


# --- votes ---------------------------------------------------------------------------------------


def test_a_state_that_was_set_to_approved_without_a_vote_is_not_run() -> None:
    bank, bench = opened()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    stored(bench, record.content, [*steps_of(record), (State.APPROVED, {"event": "vote"})])
    found_corrupt(bench, bank, record.id)


def test_an_action_that_is_born_approved_needs_votes_as_well() -> None:
    bank, bench = opened()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    stored(bench, record.content, [(State.APPROVED, {"event": "proposed"})])
    found_corrupt(bench, bank, record.id)


def test_a_vote_signed_by_an_unknown_key_is_not_counted() -> None:
    bank, bench = opened()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    vote = vote_for(record, Signer.generate())
    stored(bench, record.content, with_vote(record, vote.as_json()))
    for _ in range(3):
        bench.run(record.id)
    assert bank.calls == []
    assert bench.tally.get(record.id).attempts == 0


def test_a_vote_under_a_known_key_id_with_another_signature_is_not_counted() -> None:
    bank, bench = opened()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    assert bench.tally.signer
    vote = replace(vote_for(record, Signer.generate()), key_id=bench.tally.signer.key_id)
    stored(bench, record.content, with_vote(record, vote.as_json()))
    found_corrupt(bench, bank, record.id)


@pytest.mark.parametrize("signature", ["", "00", "zz", "0" * 128, "0" * 127])
def test_a_vote_with_a_signature_that_is_none_is_not_counted(signature: str) -> None:
    bank, bench = opened()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    assert bench.tally.signer
    vote = replace(vote_for(record, bench.tally.signer), signature=signature)
    stored(bench, record.content, with_vote(record, vote.as_json()))
    found_corrupt(bench, bank, record.id)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("action_id", "0123456789abcdef"),
        ("digest", "sha256:0"),
        ("decision", "reject"),
        ("decision", "abstain"),
        ("who", "ben"),
        ("answer", "yes"),
        ("at", 1),
        ("namespace", "elsewhere"),
    ],
)
def test_a_vote_that_was_altered_is_not_counted(name: str, value: Any) -> None:
    bank, bench = opened()
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    vote = record.votes[0].as_json() | {name: value}
    stored(bench, record.content, with_vote(record, vote))
    found_corrupt(bench, bank, record.id)


def test_a_good_vote_on_another_action_is_not_counted() -> None:
    bank, bench = opened()
    approved = record_of(bench, bench.approved(DEPOSIT, TEN))
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    stored(bench, record.content, with_vote(record, approved.votes[0].as_json()))
    found_corrupt(bench, bank, record.id)


def test_a_no_that_was_stored_as_an_approval_is_not_counted() -> None:
    bank, bench = opened()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    bench.tally.reject(record.id, by="anna", reason="no")
    (vote,) = record_of(bench, record.id).votes
    stored(bench, record.content, with_vote(record, vote.as_json()))
    found_corrupt(bench, bank, record.id)


def test_one_vote_stored_twice_is_no_quorum_of_two() -> None:
    bank, bench = opened(policy=TWO)
    id = bench.propose(DEPOSIT, TEN).id
    bench.tally.approve(id, by="anna")
    record = record_of(bench, id)
    vote = record.votes[0].as_json()
    steps: list[Step] = [*steps_of(record), (State.APPROVED, {"event": "vote", "vote": vote})]
    stored(bench, record.content, steps)
    found_corrupt(bench, bank, id)


def test_a_signed_vote_by_the_proposer_is_not_counted() -> None:
    bank, bench = opened()
    record = record_of(bench, bench.propose(DEPOSIT, TEN, by="anna").id)
    assert bench.tally.signer
    vote = vote_for(record, bench.tally.signer, who="Anna")
    stored(bench, record.content, with_vote(record, vote.as_json()))
    found_corrupt(bench, bank, record.id)


@pytest.mark.parametrize("point", ["after_intent", "after_effect", "after_reply"])
def test_an_intent_without_votes_is_not_recovered(point: str) -> None:
    bank, bench = opened("keyed")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, point)
    record = record_of(bench, id)
    steps = [
        (state, {name: value for name, value in told.items() if name != "vote"})
        for state, told in steps_of(record)
    ]
    stored(bench, record.content, steps)
    found_corrupt(bench, bank, id)


# --- compensations -------------------------------------------------------------------------------

ASKED = {"account": "alice", "balance": "100"}
STOLEN = {"account": "mallory", "balance": "1000000"}


def compensating() -> tuple[Bank, Bench, str, str]:
    """An action that is rolling back, and its compensation that has not begun."""
    bank, bench = opened(rollback=COMPENSATED)
    bank.troubles = [Trouble.LANDS_WRONG]
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_compensation")
    (child,) = [one.id for one in bench.tally.list() if one.compensates == id]
    assert bench.tally.get(child).params == ASKED
    return bank, bench, id, child


def asking(id: str, params: dict[str, Any]) -> dict[str, Any]:
    """The line of an action that asks for its compensation."""
    plan = {"kind": "compensate", "key": rollback_key(id), "action": RESTORE, "params": params}
    return {"event": "refuted", "rollback": plan, "wrong": None}


def forged_child(bench: Bench, parent: str, params: dict[str, Any], **changed: Any) -> str:
    """A compensation that nobody stored through Tallystick."""
    model = record_of(bench, bench.propose(RESTORE, params).id)
    changed = {"key": rollback_key(parent), "compensates": parent} | changed
    content = altered(model.content, **changed)
    return stored(bench, content, [(State.APPROVED, {"event": "compensates"})])


def test_a_compensation_with_other_parameters_than_asked_is_not_run() -> None:
    bank, bench, id, child = compensating()
    record = record_of(bench, child)
    stored(
        bench, altered(record.content, params=STOLEN, observed={"balance": "100"}), steps_of(record)
    )
    bench.run(child)
    assert bank.balance("mallory") == 100
    assert bench.state(child) is State.CORRUPT
    assert until_rest(bench, id).state is State.ROLLBACK_FAILED


def test_a_compensation_of_an_action_that_does_not_exist_is_not_run() -> None:
    bank, bench = opened()
    found_corrupt(bench, bank, forged_child(bench, "0123456789abcdef", STOLEN))


def test_a_compensation_that_its_action_never_asked_for_is_not_run() -> None:
    bank, bench = opened(rollback=COMPENSATED)
    parent = bench.approved(DEPOSIT, TEN)
    bench.run(parent)
    found_corrupt(bench, bank, forged_child(bench, parent, STOLEN))


def test_a_compensation_of_an_action_that_is_undone_in_another_way_is_not_run() -> None:
    bank, bench = opened(rollback=InBand("undo"))
    bank.troubles = [Trouble.LANDS_WRONG, Trouble.REFUSES]
    parent = bench.approved(DEPOSIT, TEN)
    bench.run(parent)
    found_corrupt(bench, bank, forged_child(bench, parent, STOLEN))


@pytest.mark.parametrize("closed", [State.REJECTED, State.CANCELLED, State.COMMITTED])
def test_a_compensation_of_a_forged_action_that_nobody_approved_is_not_run(closed: State) -> None:
    """Nothing in here was ever signed; the parent is closed, so nobody runs or checks it."""
    bank, bench = opened(rollback=COMPENSATED)
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    way = {State.COMMITTED: [State.APPROVED, State.RUNNING]}.get(closed, [])
    told: list[Step] = [(state, {"event": "forged"}) for state in way]
    stored(bench, record.content, [*steps_of(record), *told, (closed, asking(record.id, STOLEN))])

    child = forged_child(bench, record.id, STOLEN)

    bench.run(child)
    assert bank.balance("mallory") == 100
    assert bench.state(child) is State.CORRUPT


def test_a_compensation_is_what_the_approved_action_would_ask_for_and_no_other() -> None:
    """The votes on the parent are good; its journal was made up from there on."""
    bank, bench = opened(rollback=COMPENSATED)
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    made_up: list[Step] = [
        (State.APPROVED, {"event": "claimed", "lease": "0"}),
        (State.RUNNING, {"event": "intent", "before": record.content.observed, "attempt": 1}),
        (State.VERIFYING, {"event": "replied", "reply": "ok", "result": None, "why": ""}),
        (State.ROLLING_BACK, asking(record.id, STOLEN)),
    ]
    stored(bench, record.content, [*steps_of(record), *made_up])
    child = forged_child(bench, record.id, STOLEN)
    bench.run(child)
    assert bank.balance("mallory") == 100
    assert bench.state(child) is State.CORRUPT


RICH = {"balance": "1000000"}
"""What a forger would like the account to be "restored" to."""


@pytest.mark.parametrize("state", [State.VERIFYING, State.ROLLING_BACK])
def test_a_state_from_before_that_nobody_approved_is_not_restored(state: State) -> None:
    """The votes are good, and cover the state that was observed; the rest was made up."""
    bank, bench = opened()
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    bank.balances["alice"] = Decimal(111)
    refuted = {"event": "refuted", "rollback": {"kind": "in_band"}, "wrong": {"balance": "111"}}
    told: list[Step] = [
        (State.APPROVED, {"event": "claimed", "lease": "0"}),
        (State.RUNNING, {"event": "intent", "before": RICH, "attempt": 1}),
        (State.VERIFYING, {"event": "replied", "reply": "ok", "result": None, "why": ""}),
        (State.ROLLING_BACK, refuted),
    ]
    kept = [step for step, _ in told].index(state) + 1
    stored(bench, record.content, [*steps_of(record), *told[:kept]])
    found_corrupt(bench, bank, record.id)
    assert bank.balance() == 111


def test_a_compensation_does_not_restore_what_nobody_approved() -> None:
    bank, bench = opened(rollback=COMPENSATED)
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    wanted = {"account": "alice", **RICH}
    told: list[Step] = [
        (State.APPROVED, {"event": "claimed", "lease": "0"}),
        (State.RUNNING, {"event": "intent", "before": RICH, "attempt": 1}),
        (State.VERIFYING, {"event": "replied", "reply": "ok", "result": None, "why": ""}),
        (State.ROLLING_BACK, asking(record.id, wanted)),
    ]
    stored(bench, record.content, [*steps_of(record), *told])
    child = forged_child(bench, record.id, wanted)
    bench.run(child)
    assert bank.balance() == 100
    assert bench.state(child) is State.CORRUPT


def test_an_action_waits_for_a_compensation_that_a_newer_version_wrote() -> None:
    """In a rolling deploy, the old worker leaves both to the new one."""
    bank, bench, id, child = compensating()
    record = record_of(bench, child)
    stored(bench, altered(record.content, schema=99), steps_of(record))
    for _ in range(3):
        lease_runs_out(bench, id)
        bench.run(id)
    assert bench.state(id) is State.ROLLING_BACK
    assert bank.effects(RESTORE) == 0


def test_a_compensation_of_an_action_of_another_namespace_is_not_run() -> None:
    """Approved for the test stage with the same key, and copied into production."""
    bank, bench = opened(rollback=COMPENSATED)
    stage = Bench(deposit(bank, rollback=COMPENSATED), restore(bank), namespace="stage")
    stage.tally.signer, stage.tally.keyring = bench.tally.signer, bench.tally.keyring
    record = record_of(stage, stage.approved(DEPOSIT, TEN))
    told: list[Step] = [
        (State.APPROVED, {"event": "claimed", "lease": "0"}),
        (State.RUNNING, {"event": "intent", "before": record.content.observed, "attempt": 1}),
        (State.VERIFYING, {"event": "replied", "reply": "ok", "result": None, "why": ""}),
        (State.ROLLING_BACK, asking(record.id, {"account": "alice", "balance": "100"})),
    ]
    stored(bench, record.content, [*steps_of(record), *told])
    found_corrupt(bench, bank, forged_child(bench, record.id, ASKED))


def test_an_action_whose_compensation_was_damaged_ends_as_rollback_failed() -> None:
    bank, bench, id, child = compensating()
    redis_of(bench).hset(action_key(bench, child), "digest", "tampered")
    bench.run(child)
    assert until_rest(bench, id).state is State.ROLLBACK_FAILED
    assert bank.effects(RESTORE) == 0


@pytest.mark.parametrize("mark", ["0123456789abcdef sha256:0", "nonsense", ""])
def test_a_compensation_key_that_was_redirected_ends_as_rollback_failed(mark: str) -> None:
    bank, bench, id, _ = compensating()
    redis_of(bench).set(bench.tally.store.keys.idempotency(rollback_key(id)), mark)
    assert until_rest(bench, id).state is State.ROLLBACK_FAILED
    assert bank.effects(RESTORE) <= 1
