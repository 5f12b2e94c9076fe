"""Several verdicts make one: a failure outweighs doubt, and doubt outweighs agreement."""

from itertools import permutations

import pytest

from tallystick.core.errors import InvalidInput
from tallystick.verifiers import Answer, Verdict
from tallystick.verifiers.combine import all_of

HOLDS = Verdict.holds(observed={"balance": "70"})
FAILS = Verdict.fails(expected={"balance": "30"}, observed={"balance": "0"}, reason="no credit")
UNKNOWN = Verdict.inconclusive(reason="the mail server does not answer")


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        ((HOLDS,), Answer.HOLDS),
        ((HOLDS, HOLDS), Answer.HOLDS),
        ((UNKNOWN,), Answer.INCONCLUSIVE),
        ((HOLDS, UNKNOWN), Answer.INCONCLUSIVE),
        ((FAILS,), Answer.FAILS),
        ((HOLDS, FAILS), Answer.FAILS),
        ((FAILS, UNKNOWN), Answer.FAILS),
        ((HOLDS, UNKNOWN, FAILS), Answer.FAILS),
    ],
)
def test_the_worst_answer_decides_in_any_order(parts: tuple[Verdict, ...], answer: Answer) -> None:
    assert {all_of(*order).answer for order in permutations(parts)} == {answer}


def test_no_verdicts_at_all_prove_nothing_and_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^verdicts: there are none to join"):
        all_of()


def test_the_difference_names_the_position_and_the_path_of_what_failed() -> None:
    assert all_of(HOLDS, FAILS).difference == {"[1].balance": {"expected": "30", "observed": "0"}}


def test_parts_that_did_not_fail_do_not_show_as_differences() -> None:
    pending = Verdict.inconclusive(reason="pending", observed={"status": "queued"})
    loose = Verdict.holds(expected={"at least": 1}, observed={"found": 2})
    assert list(all_of(pending, loose, FAILS).difference) == ["[2].balance"]


def test_every_observation_is_kept_at_its_position() -> None:
    assert all_of(HOLDS, UNKNOWN).observed == [{"balance": "70"}, None]
    assert all_of(HOLDS, FAILS).observed == [{"balance": "70"}, {"balance": "0"}]
    assert all_of(HOLDS, HOLDS).observed == [{"balance": "70"}, {"balance": "70"}]


def test_reasons_are_joined_with_their_positions() -> None:
    assert all_of(HOLDS, UNKNOWN, FAILS).reason == (
        "[1] the mail server does not answer; [2] no credit"
    )


def test_joined_verdicts_can_be_joined_again() -> None:
    joined = all_of(HOLDS, all_of(HOLDS, FAILS))
    assert list(joined.difference) == ["[1][1].balance"]
