"""What nobody should hand in: each is refused by a typed error that names the field and what to
do about it, and nothing is stored."""

import json
import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, Field

from tallystick import ActionRecord, Policy, State, TallystickError
from tallystick.core import canonical
from tallystick.core.errors import (
    ActionExpired,
    ApproverNotAllowed,
    IllegalMove,
    InvalidInput,
    KeyConflict,
    NoSigningKey,
    TargetUnreadable,
    UnknownAction,
    UnknownId,
    WrongAnswer,
)
from tallystick.testing import Bench
from tests.driving import TEN, Clock, key_space, nothing_stored, opened
from tests.targets import DEPOSIT, FOR_EVER, Bank, deposit, with_method

MAX = 64 * 1024
SURROGATE = json.loads('"\\ud800"')

Call = Callable[[], object]


def refused(bench: Bench, call: Call, error: type[TallystickError], *words: str) -> TallystickError:
    """It raises exactly this, in these words, and changes no key."""
    with nothing_stored(bench), pytest.raises(error) as raised:
        call()
    assert type(raised.value) is error
    for word in words:
        assert word in str(raised.value)
    return raised.value


def refused_field(bench: Bench, call: Call, field: str, *words: str) -> None:
    """It is an `InvalidInput` that names this field and has a remedy."""
    facts = refused(bench, call, InvalidInput, field, *words).facts
    assert facts["field"] == field
    assert facts["problem"]
    assert facts["remedy"].endswith(".")


def proposed(bench: Bench, params: Any, **given: Any) -> Callable[[], ActionRecord]:
    given = {"key": "k", "by": "anna"} | given
    return lambda: bench.tally.propose(DEPOSIT, params, **given)


# --- the action and its parameters ---------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["bank.withdraw", "", "BANK.DEPOSIT", "os.system", "bank.deposit "]
)
def test_an_unknown_action_is_refused_with_the_known_ones(name: str) -> None:
    _, bench = opened()
    refused(
        bench,
        lambda: bench.tally.propose(name, TEN, key="k", by="anna"),
        UnknownAction,
        repr(name),
        DEPOSIT,
        "TALLYSTICK_ACTIONS",
    )


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "params.amount"),
        ({"amount": "ten"}, "params.amount"),
        ({"amount": None}, "params.amount"),
        ({"amount": "10", "account": 5}, "params.account"),
        ({"amount": "10", "account": ["alice"]}, "params.account"),
        ({"amount": "10", "currency": "EUR"}, "params.currency"),
        ({"amount": "Infinity"}, "params.amount"),
        ({"amount": Decimal("NaN")}, "params.amount"),
        ({"amount": math.nan}, "params.amount"),
        ({"amount": math.inf}, "params.amount"),
        ({"amount": 2**53}, "params.amount"),
        ({"amount": -(2**53)}, "params.amount"),
        ({"amount": 10**400}, "params.amount"),
        ({"amount": "10", "account": SURROGATE}, "params.account"),
        ({"amount": "10", "account": "al\x00ice"}, "params.account"),
        ({"amount": "10", "account": "\x1b[31malice"}, "params.account"),
        ({"amount": "10", "account": "alice\x85"}, "params.account"),
    ],
    ids=repr,
)
def test_parameters_that_do_not_fit_are_refused_by_name(params: Any, field: str) -> None:
    _, bench = opened()
    refused_field(bench, proposed(bench, params), field)


def test_an_unknown_field_is_refused_with_the_known_ones() -> None:
    _, bench = opened()
    refused_field(
        bench, proposed(bench, {**TEN, "currency": "EUR"}), "params.currency", "account", "amount"
    )


class Nested(BaseModel):
    inner: dict[str, int] = Field(default_factory=dict)
    rows: list[int] = Field(default_factory=list)


class Outer(BaseModel):
    account: str = "alice"
    amount: Decimal = Decimal(1)
    nested: Nested = Nested()


@pytest.mark.parametrize(
    ("nested", "field"),
    [
        ({"other": 1}, "params.nested.other"),
        ({"rows": [1, "x"]}, "params.nested.rows.1"),
        ({"inner": {"a": "x"}}, "params.nested.inner.a"),
        ({"inner": {"a": 2**53}}, "params.nested.inner.a"),
        ({"rows": [1, 2**53]}, "params.nested.rows[1]"),
        ({"inner": {"é": 1, "e\u0301": 2}}, "params.nested.inner.é"),
    ],
    ids=repr,
)
def test_a_nested_field_is_named_by_its_path(nested: Any, field: str) -> None:
    bench = Bench(deposit(Bank(), Params=Outer))
    refused_field(bench, proposed(bench, {"nested": nested}), field)


@pytest.mark.parametrize("params", [None, "alice", b"{}", 5, ["alice", "10"], {"alice"}], ids=repr)
def test_parameters_that_are_no_object_are_refused(params: Any) -> None:
    _, bench = opened()
    refused_field(bench, proposed(bench, params), "params", "account")


@pytest.mark.parametrize("name", [5, None, ("account",)], ids=repr)
def test_parameter_names_that_are_no_text_are_refused(name: Any) -> None:
    _, bench = opened()
    refused_field(bench, proposed(bench, {**TEN, name: "x"}), "params")


def test_parameters_over_64_kib_are_refused_with_another_way() -> None:
    _, bench = opened()
    room = MAX - len(canonical.dumps({"account": "", "amount": "10"}))
    refused_field(
        bench, proposed(bench, {**TEN, "account": "a" * (room + 1)}), "params", "65536", "reference"
    )
    assert proposed(bench, {**TEN, "account": "a" * room})().state is State.WAITING_FOR_APPROVAL


def test_the_limit_counts_bytes_and_not_characters() -> None:
    _, bench = opened()
    refused_field(bench, proposed(bench, {**TEN, "account": "ß" * (MAX // 2)}), "params")


@pytest.mark.parametrize("depth", [33, 100_000])
def test_parameters_nested_too_deep_are_refused(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    _, bench = opened()
    call = proposed(bench, {**TEN, "account": value})
    error = refused(bench, call, InvalidInput, "32 levels", "Flatten it.")
    assert error.facts["field"].startswith("params.account")


def test_a_cycle_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    _, bench = opened()
    refused(bench, proposed(bench, {**TEN, "account": value}), InvalidInput, "params.account")


class Aliased(BaseModel):
    account: str = Field(alias="from")
    amount: Decimal


def test_a_parameter_goes_by_its_alias_all_the_way() -> None:
    bench = Bench(deposit(Bank(), Params=Aliased))
    id = bench.approved(DEPOSIT, {"from": "alice", "amount": "10"})
    assert bench.run(id).state is State.COMMITTED


# --- numbers and text keep their exact value -----------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (0.1, "0.1"),
        (0.1 + 0.2, "0.30000000000000004"),
        ("0.30", "0.3"),
        (Decimal("0.1") + Decimal("0.2"), "0.3"),
        (1e2, "100"),
        (2**53 - 1, "9007199254740991"),
        ("9007199254740993", "9007199254740993"),
        ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
        (canonical.loads("10.10", field="x"), "10.1"),
        (canonical.loads("0.30000000000000001", field="x"), "0.30000000000000001"),
    ],
)
def test_money_never_passes_through_a_float(given: Any, kept: str) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, {"account": "alice", "amount": given})
    stored = bench.tally.get(id).params["amount"]
    assert isinstance(stored, str)
    assert Decimal(stored) == Decimal(kept)
    assert bench.run(id).state is State.COMMITTED
    assert bank.balance() == 100 + Decimal(kept)


def test_a_number_given_as_itself_or_as_its_text_is_one_request() -> None:
    _, bench = opened()
    ids = {
        bench.propose(DEPOSIT, {"amount": amount}, key="k").id
        for amount in (10, "10", Decimal("10"))
    }
    assert len(ids) == 1


def test_the_digits_that_were_proposed_are_the_digits_that_are_shown() -> None:
    _, bench = opened()
    assert bench.propose(DEPOSIT, {"amount": "10.50"}).params["amount"] == "10.50"


def test_text_has_one_spelling_and_so_one_digest() -> None:
    _, bench = opened()
    composed = bench.propose(DEPOSIT, {"amount": 1, "account": "caf\u00e9"}, key="k\u00e9")
    apart = bench.propose(DEPOSIT, {"amount": 1, "account": "cafe\u0301"}, key="ke\u0301")
    assert composed.id == apart.id
    assert composed.params["account"] == "caf\u00e9"


def test_line_breaks_in_text_are_kept() -> None:
    _, bench = opened()
    found = bench.propose(DEPOSIT, {"amount": 1, "account": "a\tb\r\nc"})
    assert found.params["account"] == "a\tb\r\nc"


# --- JSON from outside ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field", "word"),
    [
        ('{"a": 1, "a": 2}', "params.a", "twice"),
        ('{"b": {"a": 1, "a": 1}}', "params.a", "twice"),
        ("NaN", "params", "NaN"),
        ('{"a": Infinity}', "params", "Infinity"),
        ('{"a": -Infinity}', "params", "Infinity"),
        ("{", "params", "not valid JSON"),
        ("", "params", "not valid JSON"),
        ("{'a': 1}", "params", "not valid JSON"),
        (b"\xff\xfe", "params", "not valid JSON"),
        ("[" * 100_000, "params", "nested"),
        ("1" * 5000, "params", "digits"),
    ],
    ids=[
        "twice",
        "twice-deep",
        "nan",
        "inf",
        "-inf",
        "open",
        "empty",
        "quotes",
        "utf8",
        "deep",
        "long",
    ],
)
def test_json_that_could_be_read_in_two_ways_is_refused(
    text: str | bytes, field: str, word: str
) -> None:
    with pytest.raises(InvalidInput, match=word) as raised:
        canonical.loads(text, field="params")
    assert raised.value.facts["field"] == field


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (r'{"amount": 1, "account": "\ud800"}', "params.account"),
        (r'{"amount": 1, "account": "\u0000"}', "params.account"),
        ('{"amount": 1e400}', "params.amount"),
        ('{"amount": 9007199254740993}', "params.amount"),
        (r'{"amount": 1, "\ud800": 1}', "params"),
    ],
)
def test_json_that_hides_what_cannot_be_stored_is_refused(text: str, field: str) -> None:
    _, bench = opened()
    params = canonical.loads(text, field="params")
    refused_field(bench, proposed(bench, params), field)


# --- keys, names, reasons ------------------------------------------------------------------------

LABELS: list[Any] = ["", " ", "\u3000", "k" * 257, "ß" * 129, "a\nb", "a\x00", "\x7f", SURROGATE]


@pytest.mark.parametrize("label", LABELS, ids=ascii)
def test_an_idempotency_key_is_a_short_line_of_text(label: str) -> None:
    _, bench = opened()
    refused_field(bench, proposed(bench, TEN, key=label), "key")


@pytest.mark.parametrize("label", LABELS, ids=ascii)
def test_a_name_is_a_short_line_of_text(label: str) -> None:
    _, bench = opened()
    refused_field(bench, proposed(bench, TEN, by=label), "by")
    id = bench.propose(DEPOSIT, TEN).id
    tally = bench.tally
    calls: list[Call] = [
        lambda: tally.approve(id, by=label),
        lambda: tally.reject(id, by=label, reason="no"),
        lambda: tally.cancel(id, by=label),
        lambda: tally.acknowledge(id, by=label),
        lambda: tally.resolve(id, to="abandoned", by=label, evidence="x"),
    ]
    for call in calls:
        refused_field(bench, call, "by")


@pytest.mark.parametrize("label", [5, None, b"key"], ids=repr)
def test_a_key_or_a_name_that_is_no_text_is_refused(label: Any) -> None:
    _, bench = opened()
    refused_field(bench, proposed(bench, TEN, key=label), "key")
    refused_field(bench, proposed(bench, TEN, by=label), "by")


def test_the_longest_key_is_accepted() -> None:
    _, bench = opened()
    assert proposed(bench, TEN, key="ß" * 128)().key == "ß" * 128


def test_keys_of_rollbacks_are_not_given_to_callers() -> None:
    _, bench = opened()
    key = "tallystick:rollback:0123456789abcdef"
    refused_field(bench, proposed(bench, TEN, key=key), "key", "reserved")


@pytest.mark.parametrize(
    "reason", ["a\x00", SURROGATE, "r" * (MAX + 1)], ids=lambda r: ascii(r)[:9]
)
def test_a_reason_is_text_of_64_kib_at_most(reason: str) -> None:
    _, bench = opened()
    refused_field(bench, proposed(bench, TEN, reason=reason), "reason")
    id = bench.propose(DEPOSIT, TEN).id
    refused_field(bench, lambda: bench.tally.cancel(id, by="anna", reason=reason), "reason")
    refused_field(bench, lambda: bench.tally.reject(id, by="anna", reason=reason), "reason")


@pytest.mark.parametrize("reason", ["", "  ", "\n"])
def test_a_no_needs_a_reason(reason: str) -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    refused_field(bench, lambda: bench.tally.reject(id, by="anna", reason=reason), "reason", "why")


# --- decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["0123456789abcdef", "nonsense", "*", "}:x", "a" * 256])
def test_an_unknown_id_is_refused_with_where_to_look(id: str) -> None:
    _, bench = opened()
    tally = bench.tally
    calls: list[Call] = [
        lambda: tally.get(id),
        lambda: tally.history(id),
        lambda: tally.wait(id, timeout=0),
        lambda: tally.approve(id, by="anna"),
        lambda: tally.reject(id, by="anna", reason="no"),
        lambda: tally.cancel(id, by="anna"),
        lambda: tally.acknowledge(id, by="anna"),
        lambda: tally.resolve(id, to="abandoned", by="anna", evidence="x"),
    ]
    for call in calls:
        refused(bench, call, UnknownId, repr(id), "tallystick list")


@pytest.mark.parametrize("id", ["", "a\nb", "a" * 257])
def test_an_id_that_is_none_is_refused(id: str) -> None:
    _, bench = opened()
    refused_field(bench, lambda: bench.tally.get(id), "id")
    refused_field(bench, lambda: bench.tally.cancel(id, by="anna"), "id")


def test_an_illegal_change_of_state_is_refused_with_the_state_it_is_in() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    refused(
        bench,
        lambda: bench.tally.cancel(id, by="anna"),
        IllegalMove,
        id,
        "committed",
        "cancelled",
        "Only what has not begun",
    )


def test_an_approver_who_may_not_is_refused_with_the_reason() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN, by="anna").id
    for who in ("anna", "ANNA", " Anna "):
        call = partial(bench.tally.approve, id, by=who)
        words = (who, "proposer may not approve", "Ask someone else")
        refused(bench, call, ApproverNotAllowed, *words)


@pytest.mark.parametrize("answer", [None, "", "yes", "alice 10\u200b", "Alice 10"])
def test_a_wrong_answer_to_the_challenge_is_refused_with_the_right_one(answer: str | None) -> None:
    _, bench = opened(rollback=FOR_EVER)
    id = bench.propose(DEPOSIT, TEN).id
    refused(
        bench,
        lambda: bench.tally.approve(id, by="anna", answer=answer),
        WrongAnswer,
        "alice 10",
        "--answer",
    )


def test_an_answer_with_control_characters_is_refused() -> None:
    _, bench = opened(rollback=FOR_EVER)
    id = bench.propose(DEPOSIT, TEN).id
    refused_field(bench, lambda: bench.tally.approve(id, by="a", answer="alice\x00"), "answer")


def test_a_late_approval_expires_it_and_says_when(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    _, bench = opened(policy=Policy(expires_after=timedelta(minutes=5)))
    found = bench.propose(DEPOSIT, TEN)
    clock.pass_by(seconds=301)
    with pytest.raises(ActionExpired, match=found.expires_at) as raised:
        bench.tally.approve(found.id, by="anna")
    assert "Propose it again" in str(raised.value)
    assert bench.state(found.id) is State.EXPIRED


def test_who_holds_no_key_cannot_decide() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    bench.tally.signer = None
    calls: list[Call] = [
        lambda: bench.tally.approve(id, by="anna"),
        lambda: bench.tally.reject(id, by="anna", reason="no"),
        lambda: bench.tally.resolve(id, to="abandoned", by="anna", evidence="x"),
    ]
    for call in calls:
        refused(bench, call, NoSigningKey, "TALLYSTICK_KEY_DIR")


@pytest.mark.parametrize("to", ["", "approved", "unknown", "COMMITTED", "corrupt"])
def test_a_resolution_goes_to_one_of_three_states(to: str) -> None:
    _, bench = opened("blind")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "before_effect")
    bench.run(id)
    refused_field(
        bench,
        lambda: bench.tally.resolve(id, to=to, by="anna", evidence="x"),
        "to",
        "committed",
        "rolled_back",
        "abandoned",
    )


@pytest.mark.parametrize("evidence", ["", " "])
def test_a_resolution_needs_evidence(evidence: str) -> None:
    _, bench = opened("blind")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "before_effect")
    bench.run(id)
    refused_field(
        bench,
        lambda: bench.tally.resolve(id, to="abandoned", by="a", evidence=evidence),
        "evidence",
    )


@pytest.mark.parametrize("state", ["", "done", "COMMITTED"])
def test_a_list_of_no_state_is_refused_with_the_states(state: str) -> None:
    _, bench = opened()
    refused_field(bench, lambda: bench.tally.list(state), "state", *State)


@pytest.mark.parametrize("limit", [-1, -100])
def test_a_negative_limit_is_refused(limit: int) -> None:
    _, bench = opened()
    refused_field(bench, lambda: bench.tally.list(limit=limit), "limit")


# --- the target ----------------------------------------------------------------------------------


def test_a_target_that_cannot_be_read_stops_the_proposal() -> None:
    bank, bench = opened()
    bank.unreadable = True
    refused(bench, proposed(bench, TEN), TargetUnreadable, DEPOSIT, "propose again")


@pytest.mark.parametrize(
    "state",
    [object(), {"balance": math.nan}, {"n": 2**60}, {"s": {1, 2}}, {"t": SURROGATE}, {5: 1}],
    ids=["object", "nan", "big", "set", "surrogate", "key"],
)
def test_an_observed_state_that_has_no_json_form_stops_the_proposal(state: Any) -> None:
    bench = Bench(with_method(deposit(Bank()), "observe", lambda self, params: state))
    refused(bench, proposed(bench, TEN), TargetUnreadable, DEPOSIT)


@pytest.mark.parametrize("depth", range(26, 34))
def test_an_observed_state_is_either_refused_at_once_or_never(depth: int) -> None:
    """An approval must not lead to a run that cannot write down what it sees."""
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    bank = Bank()

    def observe(self: Any, params: Any) -> dict[str, Any]:
        return bank.read("alice") | {"deep": deep}

    bench = Bench(with_method(deposit(bank), "observe", observe))
    try:
        id = bench.approved(DEPOSIT, TEN)
    except TargetUnreadable:
        assert list(key_space(bench)) == []
    else:
        assert bench.run(id).state is State.COMMITTED
        assert bank.effects() == 1


# --- a key that is taken -------------------------------------------------------------------------


def test_a_taken_key_is_refused_with_its_owner() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN, key="k").id
    call = proposed(bench, {**TEN, "amount": "11"})
    refused(bench, call, KeyConflict, "'k'", id, "sha256:", "Use a new key")
