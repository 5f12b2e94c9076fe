"""The demo's targets keep the promises that its action types rely on."""

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from tallystick.demo import accidents, actions
from tallystick.demo.service import Payments, Server
from tallystick.demo.targets import Refused, Targets
from tallystick.jobs.registry import Registry


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Targets:
    monkeypatch.setenv(accidents.FOLDER, str(tmp_path / "targets"))
    found = Targets(tmp_path / "targets")
    found.create()
    found.payments.create()
    return found


def test_the_action_types_show_every_protection_but_fenced_and_every_rollback() -> None:
    registry = Registry.load([actions.__name__])
    assert {spec.protection for spec in registry} == {"versioned", "keyed", "readable", "blind"}
    kinds = {registry.plan(spec).kind for spec in registry}
    assert kinds == {"compensate", "in_band", "out_of_band", "irreversible"}
    assert all(type(spec).__doc__ for spec in registry)


def test_the_bank_books_only_on_the_versions_that_the_order_names(targets: Targets) -> None:
    bank = targets.bank
    bank.open_account("alice", "100.00")
    bank.open_account("bob", "0.00")
    bank.transfer("alice", "bob", Decimal("40"), order="a", version="1.1")
    with pytest.raises(Refused, match=r"at version 2\.2, not 1\.1"):
        bank.transfer("alice", "bob", Decimal("40"), order="a", version="1.1")
    assert targets.effects() == {"transfer": 1}
    assert bank.balances() == {"alice": "60.00", "bob": "40.00"}


def test_the_bank_reverses_a_booking_once_for_one_order(targets: Targets) -> None:
    bank = targets.bank
    bank.open_account("alice", "100.00")
    bank.open_account("bob", "0.00")
    accidents.arm(accidents.FEE, "2.00")
    number = bank.transfer("alice", "bob", Decimal("40"), order="a")
    assert bank.balances() == {"alice": "60.00", "bob": "38.00"}
    assert bank.reverse(number, order="b") == bank.reverse(number, order="b")
    assert bank.balances() == {"alice": "100.00", "bob": "0.00"}
    with pytest.raises(Refused, match="reversed already"):
        bank.reverse(number, order="c")
    with pytest.raises(Refused, match="unknown"):
        bank.reverse(99, order="b")
    assert targets.effects() == {"transfer": 1, "reversal": 1}


def test_the_bank_refuses_what_is_not_there(targets: Targets) -> None:
    targets.bank.open_account("alice", "1.00")
    with pytest.raises(Refused, match="bob has no account"):
        targets.bank.transfer("alice", "bob", Decimal("1"), order="a")
    with pytest.raises(Refused, match=r"alice has no more than 1\.00"):
        targets.bank.transfer("alice", "alice", Decimal("2"), order="a")
    assert targets.effects() == {}


def test_an_accident_happens_once(targets: Targets) -> None:
    accidents.arm(accidents.TORN)
    targets.site.publish("a.html", "0123456789")
    assert targets.site.page("a.html").read_text() == "01234"
    targets.site.publish("a.html", "0123456789")
    assert targets.site.page("a.html").read_text() == "0123456789"


def test_a_page_that_was_not_there_before_is_taken_away_again(targets: Targets) -> None:
    targets.site.publish("a.html", "new")
    targets.site.restore("a.html", None)
    targets.site.restore("a.html", None)
    assert not targets.site.page("a.html").exists()


@pytest.fixture(params=["", "--deaf"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    payments = Payments(tmp_path / "payments.db")
    payments.create()
    payments.open_invoice("2041", "75.00")
    server = Server(payments, deaf=bool(request.param))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_service_books_once_for_one_key_unless_it_is_deaf(service: Server) -> None:
    def pay(amount: str, **headers: str) -> int:
        asked = {"invoice": "2041", "amount": amount}
        return httpx.post(f"{service.url}/payments", json=asked, headers=headers).status_code

    key = {"Idempotency-Key": "one"}
    once = not service.deaf
    assert [pay("75.00", **key), pay("75.00", **key)] == [201, 200 if once else 201]
    assert len(service.payments.effects()) == (1 if once else 2)
    assert pay("76.00", **key) == (422 if once else 201)
    assert [pay("1.00"), pay("1.00")] == [201, 201]
    assert pay("nonsense") == 400


def test_the_service_shows_its_invoices(service: Server) -> None:
    shown = httpx.get(f"{service.url}/invoices/2041")
    assert shown.json() == {"number": "2041", "due": "75.00", "paid": "0.00"}
    assert httpx.get(f"{service.url}/invoices/1").status_code == 404
    asked = {"invoice": "1", "amount": "1"}
    assert httpx.post(f"{service.url}/payments", json=asked).status_code == 404
