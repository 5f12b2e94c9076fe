"""What one vote proves: everything in it is signed, and nothing else can be read out of it."""

from dataclasses import fields, replace
from typing import Any

import pytest

from tallystick.approvals import Keyring, Signer, Vote

SIGNER = Signer.generate()
KEYS = Keyring({SIGNER.key_id: SIGNER.public})
VOTE = Vote("a1", "sha256:0", "approve", "anna", None, 1_700_000_000_000, "tallystick")
SIGNED = VOTE.signed(SIGNER)

OTHER: dict[str, Any] = {
    "action_id": "a2",
    "digest": "sha256:1",
    "decision": "reject",
    "who": "ben",
    "answer": "yes",
    "at": 1,
    "namespace": "stage",
}


def good(vote: Vote) -> bool:
    return KEYS.defect(vote.payload(), vote.key_id, vote.signature) == ""


def test_a_signed_vote_is_good() -> None:
    assert good(SIGNED)
    assert SIGNED.key_id == SIGNER.key_id


def test_an_unsigned_vote_is_not() -> None:
    assert not good(VOTE)
    assert not good(replace(VOTE, key_id=SIGNER.key_id))


def test_the_signature_covers_every_field() -> None:
    assert set(OTHER) == {field.name for field in fields(Vote)} - {"key_id", "signature"}
    for name, value in OTHER.items():
        assert not good(replace(SIGNED, **{name: value})), name


def test_an_answer_is_not_the_absence_of_one() -> None:
    assert not good(replace(SIGNED, answer=""))


def test_a_signature_for_another_purpose_is_no_vote() -> None:
    """A resolution or a challenge that is signed with the same key cannot be replayed as a vote."""
    payload = SIGNED.payload() | {"purpose": "tallystick.resolution.v1"}
    assert not good(replace(SIGNED, signature=SIGNER.sign(payload)))


def test_signing_does_not_change_the_vote() -> None:
    assert SIGNED.payload() == VOTE.payload()
    assert replace(SIGNED, key_id="", signature="") == VOTE


def test_a_vote_is_stored_without_loss() -> None:
    for vote in (VOTE, SIGNED, replace(VOTE, answer="alice 10").signed(SIGNER)):
        assert Vote.from_json(vote.as_json()) == vote


STORED = SIGNED.as_json()


@pytest.mark.parametrize("name", sorted(set(STORED) - {"answer"}))
@pytest.mark.parametrize("value", [None, [], {}, 1.5], ids=repr)
def test_a_stored_vote_of_wrong_types_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match="vote"):
        Vote.from_json({**STORED, name: value})


@pytest.mark.parametrize("value", [5, True, [], {}], ids=repr)
def test_a_stored_answer_of_a_wrong_type_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="malformed"):
        Vote.from_json({**STORED, "answer": value})


@pytest.mark.parametrize("name", sorted(set(STORED) - {"answer", "key_id", "signature"}))
def test_a_stored_vote_that_lacks_something_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="vote"):
        Vote.from_json({key: value for key, value in STORED.items() if key != name})


@pytest.mark.parametrize("name", ["more", "answers", "self", "cls"])
def test_a_stored_vote_with_something_more_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        Vote.from_json({**STORED, name: "x"})


@pytest.mark.parametrize("purpose", ["", "vote", "tallystick.vote.v2", "tallystick.resolution.v1"])
def test_what_was_signed_for_something_else_is_not_read_as_a_vote(purpose: str) -> None:
    with pytest.raises(ValueError, match="not a vote"):
        Vote.from_json({**STORED, "purpose": purpose})
