"""What the models and the machine have found in the real code, each as the shortest story of it."""

import pytest

from tallystick import Protection, State
from tallystick.testing import Bench
from tests.models import promises
from tests.models.target import COMPENSATED, IN_BAND, Fate, Target, types
from tests.models.workers import SimWorker


def opened(protection: Protection, kind: str) -> tuple[Target, Bench, str]:
    """An approved action at a target of this protection."""
    target = Target(protection)
    bench = Bench(*types(target))
    id = bench.propose(kind, {"item": "item", "value": "new"}).id
    bench.tally.approve(id, by="approver")
    return target, bench, id


def walk(worker: SimWorker, to: str) -> None:
    """Let a worker go on to this gate."""
    while worker.at != to:
        assert not worker.over, f"it ended before it came to {to!r}"
        worker.step()


def arrive(bench: Bench, target: Target) -> None:
    """All that is under way arrives; no promise may be broken by it."""
    assert target.under_way, "nothing is under way"
    for call in list(target.under_way):
        target.deliver(call)
    books = promises.Books.read(bench, target)
    for promise in promises.ALL:
        promise(books)


def test_a_call_under_way_is_fenced_off_by_the_next_try_of_the_same_worker() -> None:
    target, bench, id = opened(Protection.FENCED, IN_BAND)
    target.fate = Fate.UNDER_WAY
    assert bench.run(id).state is State.COMMITTED
    arrive(bench, target)
    first, second = bench.tally.store.load(id).events("intent")
    assert first.token < second.token
    assert target.done("set", id) == 1


def test_an_undo_under_way_is_fenced_off_by_the_next_try_of_the_same_worker() -> None:
    target, bench, id = opened(Protection.FENCED, IN_BAND)
    target.fate = Fate.CROOKED
    worker = SimWorker(bench, id, "worker-1")
    walk(worker, "before_undo")
    target.fate = Fate.UNDER_WAY
    worker.finish()
    assert bench.state(id) is State.ROLLED_BACK
    arrive(bench, target)
    assert target.done("undo", id) == 1


def test_a_call_under_way_is_fenced_off_before_its_action_is_closed() -> None:
    target, bench, id = opened(Protection.FENCED, IN_BAND)
    target.fate = Fate.UNDER_WAY
    worker = SimWorker(bench, id, "worker-1")
    walk(worker, "after_effect")
    bench.tally.stop(action=IN_BAND, by="operator", reason="no second try")
    worker.finish()
    assert bench.state(id) is State.FAILED
    arrive(bench, target)
    assert target.done("set", id) == 0


@pytest.mark.parametrize("protection", [one for one in Protection if one is not Protection.BLIND])
def test_a_late_worker_brings_no_compensation_into_being(protection: Protection) -> None:
    target, bench, id = opened(protection, COMPENSATED)
    target.fate = Fate.CROOKED
    late = SimWorker(bench, id, "late")
    walk(late, "before propose")
    bench.redis.delete(bench.tally.store.keys.lease(id))
    target.meddle("item")
    assert bench.run(id).state is State.ROLLBACK_FAILED
    late.finish()
    books = promises.Books.read(bench, target)
    assert books.child(books.parents[0]) is None
    assert bench.state(id) is State.ROLLBACK_FAILED
