"""Recovery is quick; `python -m tests.crash --speed` measures it."""

import pytest

from tests.crash import speed

pytestmark = [pytest.mark.server, pytest.mark.crash]


def test_a_dead_work_horse_and_a_dead_worker_are_recovered_soon() -> None:
    by_name = {trouble.what: trouble for trouble in speed.TROUBLES}
    horse = speed.measured(by_name["work-horse killed"], runs=2)
    worker = speed.measured(by_name["worker killed, lease 2 s"], runs=1)
    assert horse.longest < 2
    assert worker.longest < worker.floor + 4
