"""Every query of every dashboard, run by a real Prometheus over what real actions left."""

import json
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick.metrics.shipped import DASHBOARDS, shipped
from tests.live import eventful
from tests.live import stack as stacks
from tests.live.stack import Stack, stack
from tests.server.conftest import eventually

pytestmark = [pytest.mark.server, pytest.mark.crash, pytest.mark.live]

BOARDS = {name: json.loads(shipped()[name]) for name in DASHBOARDS}
LATELY_SECONDS = 300

ALL_ZERO = {
    "tallystick: Left lying A": "an overdue action would mean that recovery does not work",
    "tallystick: Left lying B": "the same, of leases",
    "tallystick: Left lying C": "a worker delivers alerts at once",
    "tallystick: Keys thrown away, replicas A": "nothing may be evicted",
    "tallystick: Keys thrown away, replicas B": "there is one server",
    "tallystick: Memory B": "the server of the tests has no limit",
    "tallystick: What failed on the way to a person A": "Redis answered",
    "tallystick: What failed on the way to a person B": "every rule can be evaluated",
    "tallystick: What failed on the way to a person C": "the receiver answered",
    "tallystick: How fast the budget burns (1 is what the level allows) C": "all began at once",
}
"""Queries whose every value is 0 here, and why; all others must show something else."""

OFTEN_ZERO = {"tallystick: Leases and wake-ups B"}
"""A wake-up is taken within milliseconds; a scrape sees one by chance."""


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.setenv("TARGET_DIR", str(tmp_path))
    monkeypatch.setattr(stacks, "MODULES", eventful.__name__)
    with stack(tmp_path) as started:
        yield started


def queries() -> dict[str, dict[str, Any]]:
    """Every target of every panel, and of every annotation, by a name that says where it is."""
    found = {}
    for board in BOARDS.values():
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                found[f"{board['uid']}: {panel['title']} {target['refId']}"] = target
        for annotation in board["annotations"]["list"]:
            name = f"{board['uid']}: annotation {annotation['name']}"
            found[name] = annotation["target"] | {"instant": False}
    return found


def variables(live: Stack) -> dict[str, str]:
    """The variables as Grafana fills them: all the values that Prometheus has of each label."""
    found = {"__rate_interval": "15s", "__range": f"{LATELY_SECONDS}s"}
    for board in BOARDS.values():
        for variable in board["templating"]["list"]:
            if variable["type"] != "query":
                continue
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
            assert asked, variable["query"]
            answer = live.get(
                "prometheus",
                f"/api/v1/label/{asked[2]}/values",
                **{"match[]": filled(asked[1], found)},
            )
            values = "|".join(re.escape(value) for value in answer["data"])
            found[variable["name"]] = f"({values})".replace("\\", "\\\\")
    return found


def filled(text: str, given: dict[str, str]) -> str:
    for name in sorted(given, key=len, reverse=True):
        text = text.replace(f"${name}", given[name])
    assert "$" not in text, text
    return text


def values(live: Stack, target: dict[str, Any], given: dict[str, str]) -> list[float]:
    """All numbers that a target gives, now or over the last minutes; an error fails the test."""
    asked, now = {"query": filled(target["expr"], given)}, time.time()
    if target["instant"]:
        answer = live.get("prometheus", "/api/v1/query", **asked)
        assert answer, asked
        samples = [one["value"] for one in answer["data"]["result"]]
    else:
        span = {"start": str(now - LATELY_SECONDS), "end": str(now), "step": "1"}
        answer = live.get("prometheus", "/api/v1/query_range", **asked, **span)
        assert answer, asked
        samples = [value for one in answer["data"]["result"] for value in one["values"]]
    return [number for _, text in samples if not math.isnan(number := float(text))]


@pytest.mark.timeout(300)
def test_every_query_of_every_dashboard_shows_what_happened(live: Stack) -> None:
    # What was counted before the first look has no increase.
    eventually(lambda: live.query("tallystick_redis_up == 1"), "the exporter is scraped")
    ids = eventful.live_through(live)
    asked, shown = queries(), dict[str, list[float]]()

    def all_show_something() -> bool:
        given = variables(live)
        for name, target in asked.items():
            if not any(shown.get(name, [])):
                shown[name] = values(live, target, given)
        silent = {name for name in asked if not any(shown[name])}
        return silent <= ALL_ZERO.keys() | OFTEN_ZERO and all(shown.values())

    try:
        eventually(all_show_something, "every query shows something", seconds=90)
    except AssertionError:
        empty = sorted(name for name in asked if not shown[name])
        zero = sorted({name for name in asked if not any(shown[name])} - {*empty, *ALL_ZERO})
        pytest.fail(f"no data: {empty}; only zeros: {zero}")
    silent = {name for name in asked if not any(shown[name])}
    assert silent - OFTEN_ZERO == set(ALL_ZERO)
    the_points_of_a_panel_name_actions(live, asked, set(ids.values()))
    a_query_of_nothing_and_a_query_that_is_none_are_seen(live)


def the_points_of_a_panel_name_actions(
    live: Stack, asked: dict[str, dict[str, Any]], ids: set[str]
) -> None:
    """From a failure in a panel to the action behind it."""
    given, now = variables(live), time.time()
    for name, target in asked.items():
        if not target.get("exemplar"):
            continue
        answer = live.get(
            "prometheus",
            "/api/v1/query_exemplars",
            query=filled(target["expr"], given),
            start=str(now - LATELY_SECONDS),
            end=str(now + 1),
        )
        points = [one["labels"] for series in answer["data"] for one in series["exemplars"]]
        assert {point["action_id"] for point in points} & ids, name


def a_query_of_nothing_and_a_query_that_is_none_are_seen(live: Stack) -> None:
    """What the checks above are worth."""
    assert values(live, {"expr": "tallystick_renamed_total", "instant": True}, {}) == []
    with pytest.raises(AssertionError):
        values(live, {"expr": "sum(tallystick_workers", "instant": True}, {})
