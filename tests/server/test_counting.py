"""No count is lost, wherever a work-horse is killed."""

import pytest
from prometheus_client import CollectorRegistry

from tallystick import State, Tallystick
from tallystick.jobs.audit import audit
from tallystick.jobs.states import HALTED, OPEN
from tallystick.metrics.collector import Collector
from tallystick.metrics.counters import ATTENTION
from tests.server import actions
from tests.server.conftest import Site, eventually
from tests.server.dying_actions import POINTS

pytestmark = [pytest.mark.server, pytest.mark.crash]

KIND = "item.dying"


def sample(site: Site, name: str, **labels: str) -> float | None:
    """What a scrape shows of one series."""
    registry = CollectorRegistry()
    registry.register(Collector(site.tally.store.snapshot, [KIND], list(State), sorted(OPEN)))
    return registry.get_sample_value(f"tallystick_{name}", labels)


def test_twenty_failures_are_counted_of_which_ten_killed_their_work_horse(site: Site) -> None:
    module = "tests.server.dying_actions"
    site.settings = site.settings.model_copy(update={"actions": (module,)})
    victims = [f"{POINTS[number % 3]}-item-{number}" for number in range(10)]
    for victim in victims:
        actions.arm(f"kill-horse-{victim}")
    site.worker("--processes", "2")
    items = [victim.partition("-")[2] for victim in victims] + [f"calm-{n}" for n in range(10)]
    with Tallystick.from_settings(site.settings, actions=[module]) as tally:
        ids = []
        for item in items:
            found = tally.propose(KIND, {"item": item, "value": "new"}, key=item, by="producer")
            ids.append(tally.approve(found.id, by="approver").id)
        for id in ids:
            assert tally.wait(id, timeout=60).state in {State.ROLLED_BACK, *HALTED}
        states = {tally.get(id).state for id in ids[10:]}
    assert states == {State.ROLLED_BACK}
    exits = "workhorse_exits_total"
    eventually(lambda: sample(site, exits, reason="signal") == 10, "ten deaths are counted")
    assert sample(site, "verifications_total", action_type=KIND, result="fails") == 20
    assert sample(site, "verifications_total", action_type=KIND, result="holds") == 0
    waiting = [
        sample(site, "attention_open", action_type=KIND, reason=reason) for reason in ATTENTION
    ]
    assert sum(number or 0 for number in waiting) == 20
    assert audit(site.tally.store, site.tally.keyring).differences == ()


def cost_of_a_scrape(site: Site) -> tuple[dict[str, int], int]:
    """How often each command was called for one snapshot, and the bytes that it answered."""
    client = site.tally.store._client
    sent = client.info("stats")["total_net_output_bytes"]
    client.config_resetstat()
    site.tally.store.snapshot(
        queue_depth=site.tally.transport.depth() if site.tally.transport else 0
    )
    calls = {name: told["calls"] for name, told in client.info("commandstats").items()}
    return calls, client.info("stats")["total_net_output_bytes"] - sent


def test_a_scrape_costs_the_same_for_many_actions_as_for_few(site: Site) -> None:
    for number in range(3):
        site.approved("item.readable", f"{number}")
    site.tally.store.snapshot()  # the connection is there, and has said hello
    few, bytes_of_few = cost_of_a_scrape(site)
    for number in range(3, 80):
        site.approved("item.readable", f"{number}")
    many, bytes_of_many = cost_of_a_scrape(site)
    assert few == many
    assert sum(many.values()) < 60
    assert many.keys() & {"cmdstat_keys", "cmdstat_scan", "cmdstat_zscan"} == set()
    assert bytes_of_many - bytes_of_few < 500  # the ids alone would be 1,200
