"""The rules: what promtool proves, and the conventions that it does not know."""

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tallystick.jobs.states import OPEN, State
from tallystick.metrics.catalog import FAMILIES, Given
from tallystick.metrics.collector import Collector
from tallystick.metrics.counters import Snapshot
from tallystick.metrics.shipped import RULES
from tests.docs.pages import DOCS, firsts, sections
from tests.metrics.scenarios import BOOKS, promtool_tests
from tests.metrics.tools import (
    ALERTS,
    BY_NAME,
    EVERY_RULE,
    GROUPS,
    RECORDED,
    RECORDS,
    TEXTS,
    run,
    write_shipped,
)

SITE = "https://tallystick.example/"
FAMILY_OF = {name: family for family in FAMILIES for name in family.sample_names()}
OTHERS_METRICS = {"up", "alertmanager_notifications_failed_total"}
OTHERS_LABELS = {"instance", "job", "integration"}
STATES = {Given.STATES: set(State), Given.OPEN_STATES: set(OPEN)}
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d", "30d")

each_alert = pytest.mark.parametrize("alert", ALERTS, ids=list(BY_NAME))


def name_of(rule: dict[str, Any]) -> str:
    """The alert, or the series with the labels that were given to it."""
    return " ".join([rule.get("alert") or rule["record"], *rule.get("labels", {}).values()])


each_record = pytest.mark.parametrize("rule", RECORDS, ids=map(name_of, RECORDS))
each_rule = pytest.mark.parametrize("rule", EVERY_RULE, ids=map(name_of, EVERY_RULE))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The shipped files, wherever the package is installed."""
    write_shipped(tmp_path)
    return tmp_path


def bare(expression: str) -> str:
    """An expression without strings, label lists, ranges and grouping."""
    rest = re.sub(r'"[^"]*"', "", expression)
    rest = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", rest)
    return re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", "", rest)


def metrics_in(expression: str) -> set[str]:
    """The metric names of an expression: what is left without labels, functions and keywords."""
    words = re.findall(r"\b[a-zA-Z_][\w:]*\b(?!\s*\()", bare(expression))
    return set(words) - {"and", "or", "unless", "max", "min", "sum"}


def matchers_in(expression: str) -> list[tuple[str, str, str]]:
    """Each matcher of an expression as (metric, label, value)."""
    return [
        (metric, label, value)
        for metric, inner in re.findall(r"([a-z_:]+)\{([^}]*)\}", expression)
        for label, _, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', inner)
    ]


# --- what promtool proves ------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_promtool_accepts_every_rule(name: str, folder: Path) -> None:
    rules = sum(len(group["rules"]) for group in GROUPS[name])
    assert f"{rules} rules found" in run("promtool", "check", "rules", name, cwd=folder)


@pytest.mark.parametrize("name", RULES)
def test_each_alert_fires_when_it_must_and_only_then(name: str, folder: Path) -> None:
    (folder / "tests.yaml").write_text(promtool_tests(name, BY_NAME), "utf-8")
    assert "SUCCESS" in run("promtool", "test", "rules", "tests.yaml", cwd=folder)


def test_promtool_accepts_the_configuration_of_prometheus_with_all_rules(folder: Path) -> None:
    said = run("promtool", "check", "config", "prometheus.yaml", cwd=folder)
    assert f"{len(RULES)} rule files found" in said


def test_promtool_finds_nothing_to_mend_in_what_is_exported(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    registry.register(Collector(Snapshot, ["bank.transfer"], ["running"], ["running"]))
    text = generate_latest(registry).decode()
    assert "tallystick_transitions_total{" in text  # promtool is content with an empty input
    assert run("promtool", "check", "metrics", cwd=tmp_path, stdin=text) == ""


def test_each_alert_is_seen_firing_and_seen_silent_in_its_scenarios() -> None:
    cases = [
        (name, firing)
        for book in BOOKS.values()
        for scenario in book["scenarios"]
        for name, times in scenario.get("alerts", {}).items()
        for firing in times.values()
    ]
    assert {name for name, firing in cases if firing} == BY_NAME.keys()
    assert {name for name, firing in cases if not firing} == BY_NAME.keys() - {"Watchdog"}


# --- names ---------------------------------------------------------------------------------------


def test_no_alert_stands_twice() -> None:
    assert len(BY_NAME) == len(ALERTS) > 0


@each_alert
def test_names_share_the_prefix(alert: dict[str, Any]) -> None:
    assert re.fullmatch(r"Tallystick([A-Z][a-z]+)+|Watchdog", alert["alert"])


@each_record
def test_a_recorded_series_is_named_by_level_metric_and_operation(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"tallystick:[a-z_]+:[a-z_]+(\d+[mhd])?", rule["record"])


def test_every_recorded_series_is_documented_and_every_documented_one_recorded() -> None:
    told = firsts(sections(DOCS / "reference/metrics.md")["Recording rules"])
    named = {name.removesuffix("W") + window for name in told for window in WINDOWS} & RECORDED
    assert named | ({*told} & RECORDED) == RECORDED
    assert all(name in RECORDED or f"{name.removesuffix('W')}1h" in RECORDED for name in told)


LEVELS = (
    "verifications:increase",
    "verification_failures:ratio",
    "starts:increase",
    "slow_starts:ratio",
)


@pytest.mark.parametrize("series", LEVELS)
def test_the_windows_of_a_level_differ_in_nothing_but_the_window(series: str) -> None:
    rules = {rule["record"]: rule["expr"] for rule in RECORDS}
    shapes = {
        rules[f"tallystick:{series}{window}"]
        .replace(f"[{window}]", "[W]")
        .replace(f"increase{window}", "increaseW")
        for window in WINDOWS
    }
    assert len(shapes) == 1


# --- labels and annotations ----------------------------------------------------------------------


@each_alert
def test_severity_says_page_or_ticket_and_only_the_watchdog_says_neither(
    alert: dict[str, Any],
) -> None:
    allowed = {"none"} if alert["alert"] == "Watchdog" else {"critical", "warning"}
    assert alert["labels"].keys() == {"severity"}
    assert alert["labels"]["severity"] in allowed


@each_alert
def test_summary_is_one_static_sentence_so_that_grouped_alerts_share_it(
    alert: dict[str, Any],
) -> None:
    assert re.fullmatch(r"[A-Z][^{}\n]+[a-z]\.", alert["annotations"]["summary"])


@each_alert
def test_description_shows_what_differs_between_two_of_its_kind(alert: dict[str, Any]) -> None:
    assert re.search(r"\{\{.*(\$value|\$labels\.).*\}\}", alert["annotations"]["description"])


@each_alert
def test_labels_in_the_description_are_labels_of_its_metrics(alert: dict[str, Any]) -> None:
    told = alert["annotations"]["description"]
    used = set(re.findall(r"\$labels\.(\w+)", told))
    assert used <= OTHERS_LABELS.union(*map(labels_of, metrics_in(alert["expr"])))


def labels_of(metric: str) -> set[str]:
    """The labels that a series can have, ours or recorded."""
    if metric in FAMILY_OF:
        return set(FAMILY_OF[metric].labels)
    expressions = [rule["expr"] for rule in RECORDS if rule["record"] == metric]
    return set().union(
        *(labels_of(inner) for expression in expressions for inner in metrics_in(expression))
    )


@each_alert
def test_runbook_annotation_is_one_or_two_sentences_that_name_a_command(
    alert: dict[str, Any],
) -> None:
    runbook = alert["annotations"]["runbook"]
    assert runbook.endswith(".")
    assert len(re.findall(r"\.(?=\s|$)", runbook)) <= 2
    assert re.search(r"`tallystick \w+", runbook)


@each_alert
def test_addresses_lead_to_the_page_of_the_alert_and_to_the_dashboard(
    alert: dict[str, Any],
) -> None:
    assert alert["annotations"]["runbook_url"] == f"{SITE}runbooks/{alert['alert']}"
    assert alert["annotations"]["dashboard_url"] == f"{SITE}dashboards/tallystick"


@each_alert
def test_annotations_hold_nothing_but_what_a_receiver_can_rely_on(alert: dict[str, Any]) -> None:
    assert alert["annotations"].keys() == {
        "summary",
        "description",
        "runbook",
        "runbook_url",
        "dashboard_url",
    }


# --- expressions ---------------------------------------------------------------------------------


@each_rule
def test_every_metric_of_every_expression_is_in_the_catalog_or_recorded(
    rule: dict[str, Any],
) -> None:
    assert metrics_in(rule["expr"]) <= FAMILY_OF.keys() | RECORDED | OTHERS_METRICS
    assert metrics_in(rule["expr"]) or rule.get("alert") == "Watchdog"


@each_rule
def test_every_matcher_names_a_label_and_a_value_that_the_catalog_lists(
    rule: dict[str, Any],
) -> None:
    for metric, label, value in matchers_in(rule["expr"]):
        if metric not in FAMILY_OF or label == "le":
            continue
        known = FAMILY_OF[metric].labels[label]
        if known is not Given.ACTION_TYPES:
            found = STATES[known] if isinstance(known, Given) else set(known)
            assert set(value.split("|")) <= found


@each_rule
def test_two_exporters_of_one_store_never_count_twice(rule: dict[str, Any]) -> None:
    """Each series of ours is aggregated over its instances, or was recorded so."""
    expression = re.sub(r"absent\([a-z_]+\)|up\{[^}]*\}", "", rule["expr"])
    series = len(re.findall(r"\btallystick_[a-z_]+", expression))
    # One pair of brackets holds a counter and its resets, and one a rate and what is divided by it.
    once = len(re.findall(r"\b(?:max|min) (?:without \(instance\b|by \(job\))", expression))
    assert once >= series - expression.count("unless resets(")


@pytest.mark.parametrize("name", RULES)
def test_no_group_sets_an_interval_so_that_the_same_files_serve_test_and_production(
    name: str,
) -> None:
    assert all(group.keys() == {"name", "rules"} for group in GROUPS[name])


def test_no_line_of_the_shipped_files_is_too_long_to_read() -> None:
    long = [line for name in RULES for line in TEXTS[name].splitlines() if len(line) > 100]
    assert long == []


# --- every series has a use ----------------------------------------------------------------------

AD_HOC = {
    "tallystick_replica_barriers_total",
    "tallystick_replica_barriers_missed_total",
    "tallystick_transition_conflicts_total",
    "tallystick_actions",
    "tallystick_decisions_total",
    "tallystick_precondition_checks_total",
    "tallystick_rollbacks_total",
    "tallystick_idempotent_replays_total",
    "tallystick_leases_active",
    "tallystick_leases_overdue",
    "tallystick_queue_depth",
    "tallystick_redis_replicas",
    "tallystick_exporter_collect_duration_seconds",
    "tallystick_exporter_collect_errors_total",
    "tallystick_build_info",
}
"""Families that no rule uses: for dashboards and for looking around."""


def test_every_family_is_used_by_a_rule_or_listed_as_for_looking_around() -> None:
    used = set().union(*(metrics_in(rule["expr"]) for rule in EVERY_RULE))
    unused = {family.name for family in FAMILIES if not {*family.sample_names()} & used}
    assert unused == AD_HOC
