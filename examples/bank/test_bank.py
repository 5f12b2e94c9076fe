"""How a team tests its action types: in process, no server, every crash at will."""

from decimal import Decimal

import bank
import pytest
from actions import Reverse, Transfer

from tallystick.testing import POINTS, Bench

FORTY = {"source": "alice", "target": "bob", "amount": "40.00"}


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setenv("BANK", str(tmp_path / "bank.db"))
    bank.open_account("alice", "100.00")
    bank.open_account("bob", "0.00")
    return Bench(Transfer, Reverse)


def test_an_approved_transfer_is_booked_and_committed(bench):
    done = bench.run(bench.approved("bank.transfer", FORTY))
    assert done.state == "committed"
    assert bank.balances() == {"alice": "60.00", "bob": "40.00"}


def test_nothing_is_booked_once_a_balance_has_changed_since_the_approval(bench):
    id = bench.approved("bank.transfer", FORTY)
    bank.transfer("alice", "bob", Decimal("1.00"), version="1.1", reference="somebody else")
    assert bench.run(id).state == "precondition_failed"
    assert bank.bookings() == [("alice", "bob", "1.00")]


@pytest.mark.parametrize("point", POINTS[: POINTS.index("after_verify") + 1])
def test_a_worker_that_dies_anywhere_leaves_one_booking(bench, point):
    id = bench.approved("bank.transfer", FORTY)
    bench.crash(id, point)
    assert bench.run(id).state == "committed"
    assert bank.bookings() == [("alice", "bob", "40.00")]


def test_a_fee_that_nobody_approved_is_seen_and_the_transfer_reversed(bench, monkeypatch):
    monkeypatch.setattr(bank, "FEE", Decimal("2.00"))
    done = bench.run(bench.approved("bank.transfer", FORTY))
    assert done.state == "rolled_back"
    assert bank.bookings() == [("alice", "bob", "38.00"), ("bob", "alice", "40.00")]
    assert bank.balances() == {"alice": "100.00", "bob": "0.00"}


def test_the_bank_refuses_for_lack_of_funds_and_nothing_is_booked(bench):
    done = bench.run(bench.approved("bank.transfer", FORTY | {"amount": "500.00"}))
    assert (done.state, done.why.endswith("alice has no more than 100.00")) == ("failed", True)
    assert bank.bookings() == []


def test_a_reversal_that_is_asked_for_twice_is_one(bench):
    bench.run(bench.approved("bank.transfer", FORTY))
    assert bank.reverse(1, reference="r") == bank.reverse(1, reference="r") == 2
    with pytest.raises(bank.Refused, match="reversed already"):
        bank.reverse(1, reference="another")
