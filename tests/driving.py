"""Short forms that the tests share: run what is left to run, let time pass, count, look."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tallystick import ActionRecord, Protection, State
from tallystick.jobs.record import Record
from tallystick.jobs.states import OPEN
from tallystick.testing import Bench
from tests.targets import Bank, deposit, restore

TEN = {"account": "alice", "amount": "10"}
"""The order that most tests give."""

ROUNDS = 25


def opened(protection: str = "readable", **attributes: Any) -> tuple[Bank, Bench]:
    """A bank that guarantees this, and a Tallystick that knows its types."""
    bank = Bank(Protection(protection))
    return bank, Bench(deposit(bank, **attributes), restore(bank))


def until_rest(bench: Bench, id: str) -> ActionRecord:
    """Run an action, and whatever it has brought into the store, until all of it is at rest.

    Between the rounds every lease runs out and everything is due, as it would be in time.
    """
    for _ in range(ROUNDS):
        bench.run(id)
        left = [one for one in bench.tally.store.ids() if in_motion(bench, one)]
        if not left:
            return bench.tally.get(id)
        for one in left:
            lease_runs_out(bench, one)
            bench.run(one)
    pytest.fail(f"{id} is still {bench.state(id)}: {bench.events(id)}")


def in_motion(bench: Bench, id: str) -> bool:
    return bench.state(id) in OPEN - {State.WAITING_FOR_APPROVAL}


def crash_if_passed(bench: Bench, id: str, point: str) -> bool:
    """Run with a worker that dies at this point; whether the run came there at all."""
    try:
        bench.crash(id, point)
    except AssertionError as missed:
        if "did not pass" not in str(missed):
            raise
        return False
    return True


def lease_runs_out(bench: Bench, id: str) -> None:
    bench.redis.delete(bench.tally.store.keys.lease(id))


def alerts(bench: Bench, id: str) -> list[str]:
    """Why people were called for this action, oldest first."""
    told = [json.loads(alert) for alert in bench.alerts()]
    return [alert["reason"] for alert in told if alert["id"] == id]


def counted(bench: Bench) -> dict[str, int]:
    return dict(bench.tally.store.snapshot().counters)


def key_space(bench: Bench) -> dict[str, Any]:
    """Everything that is stored, for tests that nothing was."""
    redis = redis_of(bench)
    read = {
        "string": redis.get,
        "hash": redis.hgetall,
        "list": lambda key: redis.lrange(key, 0, -1),
        "set": redis.smembers,
        "zset": lambda key: redis.zrange(key, 0, -1, withscores=True),
    }
    return {key: read[redis.type(key)](key) for key in sorted(redis.keys())}


def redis_of(bench: Bench) -> Any:
    """The raw client, for those who tamper (its own types know both bytes and text)."""
    return bench.redis


def record_of(bench: Bench, id: str) -> Record:
    """The record, its seals checked."""
    return bench.tally.store.load(id)


class Clock:
    """The store's clock, which can be put forward."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        real = time.time
        patch.setattr(time, "time", lambda: real() + self._ahead)

    def pass_by(self, seconds: float) -> None:
        self._ahead += seconds


@contextmanager
def nothing_stored(bench: Bench) -> Iterator[None]:
    """Whatever happens inside changes no key."""
    before = key_space(bench)
    yield
    assert key_space(bench) == before


def without_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the fake server, which knows no WAITAOF, answer as one whose replicas are away."""

    def answer(pipe: Any, replicas: int, seconds: float) -> None:
        pipe.eval("return 0", 0)
        pipe.eval("return {1, 0}", 0)

    monkeypatch.setattr("tallystick.jobs.wire.await_replicas", answer)
