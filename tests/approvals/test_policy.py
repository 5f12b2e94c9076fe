"""Who must say yes, and when it is enough: counted anew from signed votes."""

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.approvals import (
    APPROVE,
    REJECT,
    Ballot,
    Keyring,
    Objection,
    Outcome,
    Policy,
    Signer,
    Vote,
    objection,
    tally,
)

SIGNER = Signer.generate()
KEYS = Keyring({SIGNER.key_id: SIGNER.public})
DIGEST = "sha256:" + "0" * 64


def ballot(quorum: int = 1, *, alone: bool = False, challenge: str | None = None) -> Ballot:
    return Ballot("a1", DIGEST, "proposer", Policy(quorum, alone), challenge, "tallystick")


def vote(who: str = "anna", decision: str = APPROVE, **changed: Any) -> Vote:
    cast = Vote("a1", DIGEST, decision, who, None, 1, "tallystick")
    return replace(cast, **changed).signed(SIGNER)


# --- counting ------------------------------------------------------------------------------------


def test_nothing_is_approved_that_nobody_voted_on() -> None:
    decision = tally(ballot(), [], KEYS)
    assert (decision.outcome, decision.missing) == (Outcome.PENDING, 1)


@pytest.mark.parametrize("quorum", [1, 2, 3])
def test_it_is_approved_when_the_quorum_is_full(quorum: int) -> None:
    votes = [vote(f"voter-{n}") for n in range(quorum)]
    for cast in range(quorum):
        decision = tally(ballot(quorum), votes[:cast], KEYS)
        assert (decision.outcome, decision.missing) == (Outcome.PENDING, quorum - cast)
    decision = tally(ballot(quorum), votes, KEYS)
    assert decision.outcome is Outcome.APPROVED
    assert decision.approved_by == tuple(cast.who for cast in votes)


@pytest.mark.parametrize("again", ["anna", "ANNA", " anna", "Anna\t", "ａnna", "an\u200bna"])
def test_one_person_counts_once_however_they_spell_themselves(again: str) -> None:
    decision = tally(ballot(2), [vote("anna"), vote(again)], KEYS)
    assert (decision.outcome, decision.missing) == (Outcome.PENDING, 1)
    assert decision.approved_by == ("anna",)


def test_one_no_is_enough_whenever_it_comes() -> None:
    votes = [vote("anna"), vote("ben"), vote("cleo", REJECT)]
    for order in itertools.permutations(votes):
        decision = tally(ballot(2), order, KEYS)
        assert decision.outcome is Outcome.REJECTED
        assert decision.rejected_by == "cleo"


def test_the_proposer_may_say_no() -> None:
    assert tally(ballot(), [vote("proposer", REJECT)], KEYS).outcome is Outcome.REJECTED


def test_the_proposer_may_say_yes_only_where_the_policy_allows_it() -> None:
    assert tally(ballot(), [vote("Proposer ")], KEYS).outcome is Outcome.INVALID
    assert tally(ballot(alone=True), [vote("proposer")], KEYS).outcome is Outcome.APPROVED


@pytest.mark.parametrize(
    "changed",
    [
        {"action_id": "a2"},
        {"digest": "sha256:" + "1" * 64},
        {"decision": "maybe"},
        {"answer": "no"},
        {"namespace": "stage"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_vote_on_something_else_makes_the_whole_ballot_invalid(changed: dict[str, Any]) -> None:
    asked = ballot(2, challenge="yes")
    good = [vote("anna", answer="yes"), vote("ben", answer="yes")]
    decision = tally(asked, [*good, vote("cleo", **({"answer": "yes"} | changed))], KEYS)
    assert decision.outcome is Outcome.INVALID
    assert "cleo" in decision.problem


def test_a_vote_whose_signature_does_not_match_makes_the_whole_ballot_invalid() -> None:
    forged = replace(vote("cleo"), who="ben")
    decision = tally(ballot(1), [vote("anna"), forged], KEYS)
    assert decision.outcome is Outcome.INVALID
    assert "signature does not match" in decision.problem


def test_a_forged_no_does_not_reject() -> None:
    forged = replace(vote("cleo"), decision=REJECT)
    assert tally(ballot(), [forged], KEYS).outcome is Outcome.INVALID


def test_a_vote_by_a_key_that_is_not_trusted_here_approves_nothing() -> None:
    stranger = Signer.generate()
    cast = replace(vote("ben"), key_id="", signature="").signed(stranger)
    decision = tally(ballot(), [vote("anna"), cast], KEYS)
    assert decision.outcome not in {Outcome.APPROVED, Outcome.REJECTED, Outcome.PENDING}
    assert stranger.key_id in decision.problem


def test_every_approver_answers_the_challenge() -> None:
    asked = ballot(2, challenge="alice 10")
    good, bad = vote("anna", answer="alice 10"), vote("ben", answer="alice 100")
    assert tally(asked, [good], KEYS).outcome is Outcome.PENDING
    assert tally(asked, [good, bad], KEYS).outcome is Outcome.INVALID


PEOPLE = st.lists(
    st.tuples(st.sampled_from(["anna", "Anna", "ben", "cleo"]), st.sampled_from([APPROVE, REJECT])),
    max_size=6,
)


@given(cast=PEOPLE, quorum=st.integers(1, 4))
def test_it_is_approved_exactly_if_enough_people_agree_and_nobody_objects(
    cast: list[tuple[str, str]], quorum: int
) -> None:
    votes = [vote(who, decision) for who, decision in cast]
    yes = {who.casefold() for who, decision in cast if decision == APPROVE}
    objected = any(decision == REJECT for _, decision in cast)
    outcome = tally(ballot(quorum), votes, KEYS).outcome
    if objected:
        assert outcome is Outcome.REJECTED
    else:
        assert (outcome is Outcome.APPROVED) == (len(yes) >= quorum)


# --- casting -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "answer", "found"),
    [
        ("ben", "yes", None),
        ("anna", "yes", Objection.ALREADY_VOTED),
        ("ANNA ", "yes", Objection.ALREADY_VOTED),
        ("proposer", "yes", Objection.OWN_PROPOSAL),
        ("PROPOSER", "yes", Objection.OWN_PROPOSAL),
        ("ben", "no", Objection.WRONG_ANSWER),
        ("ben", None, Objection.WRONG_ANSWER),
        ("ben", "YES", Objection.WRONG_ANSWER),
    ],
)
def test_who_may_not_cast_a_vote(who: str, answer: str | None, found: Objection | None) -> None:
    assert objection(ballot(2, challenge="yes"), [vote("anna")], who, answer) is found


def test_an_answer_where_nothing_is_asked_is_no_objection() -> None:
    assert objection(ballot(), [], "ben", "whatever") is None


# --- the policy itself ---------------------------------------------------------------------------


@pytest.mark.parametrize("quorum", [0, -1])
def test_a_policy_without_approvers_is_refused(quorum: int) -> None:
    with pytest.raises(ValueError, match="quorum"):
        Policy(quorum)


@pytest.mark.parametrize("window", [timedelta(0), timedelta(seconds=-1), timedelta(microseconds=1)])
def test_a_policy_without_a_window_is_refused(window: timedelta) -> None:
    with pytest.raises(ValueError, match="expires_after"):
        Policy(expires_after=window)


POLICIES = st.builds(
    Policy,
    st.integers(1, 9),
    st.booleans(),
    st.integers(1, 10**12).map(lambda ms: timedelta(milliseconds=ms)),
)


@given(policy=POLICIES)
def test_a_policy_is_stored_without_loss(policy: Policy) -> None:
    assert Policy.from_json(policy.as_json()) == policy


@given(one=POLICIES, other=POLICIES)
def test_the_strictest_of_two_policies_satisfies_both(one: Policy, other: Policy) -> None:
    both = one.strictest(other)
    for policy in (one, other):
        assert both.quorum >= policy.quorum
        assert both.expires_after <= policy.expires_after
        assert policy.proposer_may_approve or not both.proposer_may_approve
    assert both == other.strictest(one)
    assert one.strictest(one) == one


GOOD = Policy(2).as_json()


@pytest.mark.parametrize("name", sorted(GOOD))
@pytest.mark.parametrize("value", [None, "2", 2.5, [], -1])
def test_a_stored_policy_of_wrong_types_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Policy.from_json({**GOOD, name: value})


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("name", sorted(set(GOOD) - {"proposer_may_approve"}))
def test_a_truth_value_is_no_number_in_a_stored_policy(name: str, value: bool) -> None:
    with pytest.raises(ValueError, match=r"."):
        Policy.from_json({**GOOD, name: value})


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_stored_policy_that_lacks_something_is_refused(name: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        Policy.from_json({key: value for key, value in GOOD.items() if key != name})
