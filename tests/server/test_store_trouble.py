"""A server that is down, read-only or full: a typed error, nothing stored, nothing lost."""

import pytest

from tallystick.core.errors import StoreFull, StoreReadOnly, StoreUnavailable
from tests.server import actions
from tests.server.conftest import Site, command, eventually

pytestmark = pytest.mark.server

PARAMS = {"item": "x", "value": "new"}


def test_a_server_that_is_down_is_said_to_be_and_the_same_call_works_when_it_is_back(
    site: Site,
) -> None:
    site.server.stop()
    with pytest.raises(StoreUnavailable, match="repeat the same command"):
        site.tally.propose("item.readable", PARAMS, key="x", by="producer")
    site.server.start()
    found = site.tally.propose("item.readable", PARAMS, key="x", by="producer")
    assert found.state == "waiting_for_approval"


def test_a_read_only_replica_is_named_as_such(site: Site) -> None:
    command(site.server, "REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(StoreReadOnly, match="primary"):
        site.tally.propose("item.readable", PARAMS, key="x", by="producer")
    command(site.server, "REPLICAOF", "NO", "ONE")
    assert site.tally.list() == []


def test_a_full_server_refuses_and_stores_nothing(site: Site) -> None:
    before = command(site.server, "DBSIZE")
    command(site.server, "CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreFull, match="maxmemory"):
        site.tally.propose("item.readable", PARAMS, key="x", by="producer")
    command(site.server, "CONFIG", "SET", "maxmemory", "0")
    assert command(site.server, "DBSIZE") == before


def test_a_full_server_lets_no_effect_begin(site: Site) -> None:
    id = site.approved("item.readable", "full")
    command(site.server, "CONFIG", "SET", "maxmemory", "1")
    site.worker()
    eventually(lambda: "out of memory" in site.log(), "the worker meets the full server")
    assert actions.effects("full") == 0
    command(site.server, "CONFIG", "SET", "maxmemory", "0")
    assert site.at_rest(id, seconds=30) == "committed"
    assert actions.effects("full") == 1


def test_workers_outlive_a_server_that_was_killed(site: Site) -> None:
    site.worker("--processes", "2")
    eventually(lambda: site.log().count("started") == 2, "both work-horses are up")
    site.server.stop()
    site.server.start()
    id = site.approved("item.readable", "after")
    assert site.at_rest(id, seconds=30) == "committed"
    assert site.workers[0].poll() is None
