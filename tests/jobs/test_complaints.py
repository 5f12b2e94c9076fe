"""A store that is away is told once in a while, and so is its return."""

import logging

import pytest

from tallystick.jobs.complaints import Complaints

log = logging.getLogger("tallystick.test")


class Clock:
    """A clock that is set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_same_trouble_is_told_twice_a_minute_whatever_its_words(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Complaints(log, clock)
    for turn in range(59):
        heard.heard("StoreUnavailable", f"refused {turn}")
        clock.now += 1
    assert caplog.messages == ["refused 0", "refused 30"]


def test_another_trouble_is_told_at_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    heard = Complaints(log, clock)
    for kind in ("StoreUnavailable", "StoreFull", "StoreUnavailable", "StoreFull"):
        heard.heard(kind, kind)
    assert caplog.messages == ["StoreUnavailable", "StoreFull"]


def test_its_end_is_told_once_and_only_when_it_is_over(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Complaints(log, clock)
    heard.worked()
    heard.heard("StoreUnavailable", "refused")
    clock.now += 12
    heard.heard("StoreUnavailable", "refused")
    heard.worked()
    clock.now += 6
    heard.worked()
    heard.worked()
    assert caplog.messages == ["refused", "the store answers again, after 12 s of trouble"]


def test_trouble_that_comes_back_is_told_anew(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Complaints(log, clock)
    for _ in range(2):
        heard.heard("StoreUnavailable", "refused")
        clock.now += 6
        heard.worked()
    assert caplog.messages.count("refused") == 2
