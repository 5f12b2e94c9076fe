"""The store fails while workers are in the middle of everything, and comes back.

No attempt is used up, no effect is made twice, nothing is lost, and the log is not filled. What a
run does at each of its calls is tested in tests/jobs/test_store_away.py, without a server.
"""

import os
import time

import pytest

from tests.server import actions
from tests.server.conftest import Site, eventually
from tests.server.outage import AWAY, UNWILLING, Outage, Trouble, linked
from tests.trouble import main as long_ones

pytestmark = pytest.mark.server

SECONDS = float(os.environ.get("TALLYSTICK_TEST_OUTAGE_SECONDS", "6"))
"""Three leases: whatever a worker does after one it does after a minute (`python -m tests.trouble`
takes that long)."""

LINES = 8
"""Of one worker in one outage, whatever its length and however many work-horses: that the store
fails, in so many words as it fails in ways, and that it is back. A work-horse that had to be
replaced adds one, an effect that was withheld another."""


def all_is_well(outage: Outage) -> None:
    assert outage.states == {"committed": len(outage.actions)}
    assert outage.effects == {1: len(outage.actions)}
    assert outage.attempts == {1: len(outage.actions)}
    assert outage.without_intent() == []
    assert outage.dead == {}


@pytest.mark.timeout(120 + 2 * SECONDS)
@pytest.mark.parametrize("trouble", AWAY.values(), ids=AWAY)
def test_eight_work_horses_wait_for_a_store_that_is_away_for_long(
    site: Site, trouble: Trouble
) -> None:
    outage = Outage(site, parents=2, processes=4)
    outage.play(lambda: trouble.begin(site.server), SECONDS, lambda: trouble.end(site.server))
    all_is_well(outage)
    horses = outage.parents * outage.processes
    assert max(outage.lines) <= LINES + 3 * horses
    assert outage.cpu < SECONDS / 4, "they wait, and do not spin"


@pytest.mark.parametrize("trouble", UNWILLING.values(), ids=UNWILLING)
def test_a_store_that_takes_no_writes_for_a_while_costs_nothing_but_the_time(
    site: Site, trouble: Trouble
) -> None:
    outage = Outage(site, parents=1, processes=4)
    outage.play(lambda: trouble.begin(site.server), 4, lambda: trouble.end(site.server))
    all_is_well(outage)
    assert max(outage.lines) <= LINES + 3 * outage.processes
    assert "Traceback" not in site.log()


def test_nobody_begins_while_a_store_takes_no_writes(site: Site) -> None:
    UNWILLING["full"].begin(site.server)
    site.worker("--processes", "2")
    eventually(lambda: "out of memory" in site.log(), "the worker meets the full server")
    time.sleep(3)  # the trouble is this long
    UNWILLING["full"].end(site.server)
    id = site.approved("item.readable", "after")
    assert site.at_rest(id) == "committed"
    assert site.log().count("started") <= 2 * 2, "each was replaced once, when there was use in it"


WEATHER = {
    "silent": {"there": True, "here": True},
    "replies lost": {"there": False, "here": True},
    "requests lost": {"there": True, "here": False},
}


@pytest.mark.parametrize("silence", WEATHER.values(), ids=WEATHER)
def test_a_network_that_swallows_packets_doubles_and_loses_nothing(
    site: Site, silence: dict[str, bool]
) -> None:
    with linked(site) as link:
        outage = Outage(site, parents=1, processes=4)
        outage.play(lambda: link.silence(**silence), 4, link.flow)
    all_is_well(outage)
    assert max(outage.lines) <= LINES + 3 * outage.processes


def test_a_network_that_breaks_every_connection_doubles_and_loses_nothing(site: Site) -> None:
    with linked(site) as link:
        outage = Outage(site, parents=1, processes=4)
        outage.play(link.cut, 3, link.flow)
    all_is_well(outage)


def test_a_store_that_is_slower_than_its_time_outs_doubles_and_loses_nothing(site: Site) -> None:
    """Its replies come after up to 0.9 s, the time-out of a call is 0.67 s and the lease 2 s: calls
    are carried out and given up, leases run out under those who live."""
    with linked(site) as link:
        outage = Outage(site, parents=1, processes=4)
        outage.play(lambda: link.slow(0.45, seed=8), 6, link.flow)
    committed = {item for item, id in outage.actions.items() if _state(site, id) == "committed"}
    assert all(actions.effects(item) == 1 for item in committed)
    assert outage.effects[1] + outage.effects[0] == len(outage.actions)
    assert outage.without_intent() == []
    for item in outage.actions.keys() - committed:  # taken over from somebody who lived
        assert item.startswith(("readable", "blind", "slow")), item
        assert _state(site, outage.actions[item]) == "unknown"


def _state(site: Site, id: str) -> str:
    return str(site.tally.get(id).state)


def test_the_long_outages_can_be_played(capsys: pytest.CaptureFixture[str]) -> None:
    assert long_ones(["--seconds", "1", "--workers", "1", "--kind", "full"]) == 0
    assert "3 of 3" in capsys.readouterr().out
