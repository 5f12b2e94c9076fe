"""A worker parent and a store that fails: it asks little, says little, and forgets nothing."""

import logging
from collections.abc import Callable

import pytest

from tallystick.approvals import Keyring
from tallystick.core.errors import StoreError, StoreFull, StoreRefused, StoreUnavailable
from tallystick.jobs.complaints import Complaints
from tallystick.jobs.doctor import Guard
from tallystick.jobs.horse import Horse
from tallystick.jobs.patience import Patience
from tallystick.jobs.registry import Registry
from tallystick.jobs.settings import Settings
from tallystick.jobs.supervisor import Supervisor
from tallystick.jobs.worker import Work

LOG = logging.getLogger("tallystick.worker")

AWAY = StoreUnavailable(url="redis", problem="refused")
FULL = StoreFull(url="redis")
NOPERM = StoreRefused(url="redis", problem="NOPERM")


class Calls:
    """A store of which one knows what it was asked."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.error: StoreError | None = None

    def named(self, name: str) -> Callable[[], None]:
        def call() -> None:
            self.made.append(name)
            if self.error:
                raise self.error

        return call


@pytest.fixture
def patient() -> Patience:
    return Patience(Complaints(LOG), lambda now, passing: None)


def test_a_store_that_does_not_answer_is_asked_once_a_turn(patient: Patience) -> None:
    calls = Calls()
    calls.error = AWAY
    for _ in range(2):
        patient.begin_turn()
        assert not patient.ask(calls.named("first"))
        assert not patient.ask(calls.named("second"))
    assert calls.made == ["first", "first"]


def test_one_that_refuses_is_asked_the_next_thing(patient: Patience) -> None:
    calls = Calls()
    calls.error = FULL
    assert not patient.ask(calls.named("first"))
    assert not patient.ask(calls.named("second"))
    assert calls.made == ["first", "second"]


def test_work_horses_that_the_store_ended_have_one_voice(
    patient: Patience, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(8):
        patient.hear("StoreReadOnly", "it is a replica", True)
    assert [record.getMessage() for record in caplog.records] == ["it is a replica"]
    assert patient.troubled


def test_a_refusal_that_will_not_pass_by_itself_holds_up_nobody(patient: Patience) -> None:
    calls = Calls()
    calls.error = NOPERM
    assert not patient.ask(calls.named("x"))
    assert not patient.troubled


def test_the_trouble_is_over_when_a_write_would_be_taken(patient: Patience) -> None:
    calls = Calls()
    assert not patient.recovered(calls.named("probe")), "there is none"
    calls.error = FULL
    patient.ask(calls.named("x"))
    assert not patient.recovered(calls.named("probe"))
    calls.error = None
    assert patient.ask(calls.named("reading works"))
    assert patient.troubled
    assert patient.recovered(calls.named("probe"))
    assert not patient.recovered(calls.named("probe"))


def test_what_is_owed_is_told_in_order_as_soon_as_it_can_be(patient: Patience) -> None:
    calls = Calls()
    calls.error = AWAY
    for name in ("forget", "count", "free"):
        patient.owe(calls.named(name))
    patient.begin_turn()
    patient.settle_debts()
    assert calls.made == ["forget", "forget"]
    calls.error, calls.made = None, []
    patient.begin_turn()
    patient.settle_debts()
    patient.settle_debts()
    assert calls.made == ["forget", "count", "free"]


def test_a_debt_that_is_refused_for_good_does_not_hold_up_the_others(patient: Patience) -> None:
    refused, taken = Calls(), Calls()
    refused.error = NOPERM
    patient.owe(refused.named("free"))
    patient.owe(taken.named("count"))
    patient.settle_debts()
    assert (refused.made, taken.made) == (["free"], ["count"])


def test_every_failure_is_reported_to_the_loop_and_whether_it_passes() -> None:
    told: list[bool] = []
    patient = Patience(Complaints(LOG), lambda now, passing: told.append(passing))
    calls = Calls()
    for calls.error in (FULL, NOPERM):
        patient.ask(calls.named("x"))
    assert told == [True, False]


def test_a_work_horse_that_waits_for_the_store_does_not_hang_and_one_that_acts_may() -> None:
    class Unconcerned(Guard):
        def __init__(self) -> None: ...

        def doubt(self, now: float) -> None: ...

    work = Work(Settings.load(lease_seconds=2), Registry([]), Keyring({}), "redis://", None)
    parent = Supervisor(work, processes=2)
    parent._lease, parent._guard = 2, Unconcerned()
    waits = Horse(1, 0, "waits", 0, action_id="a", owner="t", renew_at=1, kill_at=10)
    acts = Horse(2, 0, "acts", 0, action_id="b", owner="u", renew_at=float("inf"), kill_at=10)
    parent.horses = {1: waits, 2: acts}
    parent._store_failed(100, passing=False)
    assert waits.kill_at == 10, "it need not wait for what will not pass"
    parent._store_failed(100, passing=True)
    assert (waits.kill_at, acts.kill_at) == (116, 10)
