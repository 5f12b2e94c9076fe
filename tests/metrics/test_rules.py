"""The alert rules: what promtool proves, and the conventions that it does not know."""

import os
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from typer.main import get_command

from tallystick.cli.common import app
from tallystick.jobs.states import OPEN, State
from tallystick.metrics import rules_text
from tallystick.metrics.catalog import FAMILIES, Given
from tallystick.metrics.collector import Collector
from tallystick.metrics.counters import Snapshot

RULES = files("tallystick.metrics").joinpath("rules")
RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
RUNBOOK_URL = "https://tallystick.example/runbooks/"

ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(rules_text())["groups"] for rule in group["rules"]
]
NAMES = [alert["alert"] for alert in ALERTS]
PAGES = sorted(page.stem for page in RUNBOOKS.glob("*.md"))

FAMILY_OF = {name: family for family in FAMILIES for name in family.sample_names()}
LABELS_OF_PROMETHEUS = {"instance", "job"}
STATES = {Given.STATES: set(State), Given.OPEN_STATES: set(OPEN)}
COMMANDS = set(get_command(app).commands)  # type: ignore[attr-defined]

each_alert = pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
each_page = pytest.mark.parametrize("name", PAGES)


def promtool(*arguments: str, cwd: Path, stdin: str | None = None) -> str:
    """Run promtool and return what it says; a verdict against us fails the test.

    A newcomer's machine may be without it; in CI it may not be missing.
    """
    if shutil.which("promtool") is None:
        unproved = "promtool is missing, so the alerts are unproved: apt-get install prometheus"
        pytest.fail(unproved) if os.environ.get("CI") else pytest.skip(unproved)
    run = subprocess.run(
        ["promtool", *arguments], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The packaged rules and their tests as files, wherever the package is installed."""
    for name in ("tallystick.rules.yaml", "tests.yaml"):
        (tmp_path / name).write_text(RULES.joinpath(name).read_text("utf-8"), "utf-8")
    return tmp_path


def metrics_in(expression: str) -> set[str]:
    """The metric names of an expression: what is left without strings, labels and keywords."""
    rest = re.sub(r'"[^"]*"', "", expression)
    rest = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", rest)
    rest = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", "", rest)
    words = re.findall(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()", rest)
    return set(words) - {"and", "or", "unless", "max", "min", "sum", "count"}


def matchers_in(expression: str) -> list[tuple[str, str, str]]:
    """Each matcher of an expression as (metric, label, value)."""
    return [
        (metric, label, value)
        for metric, inner in re.findall(r"([a-z_]+)\{([^}]*)\}", expression)
        for label, _, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', inner)
    ]


def test_promtool_accepts_every_rule(folder: Path) -> None:
    said = promtool("check", "rules", "tallystick.rules.yaml", cwd=folder)
    assert f"{len(ALERTS)} rules found" in said


def test_each_alert_fires_when_it_must_and_only_then(folder: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", "tests.yaml", cwd=folder)


def test_promtool_finds_nothing_to_mend_in_what_is_exported(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    registry.register(Collector(Snapshot, ["bank.transfer"], ["running"], ["running"]))
    text = generate_latest(registry).decode()
    assert "tallystick_transitions_total{" in text  # promtool is content with an empty input
    assert promtool("check", "metrics", cwd=tmp_path, stdin=text) == ""


def test_each_alert_is_seen_firing_and_seen_silent_in_the_unit_tests() -> None:
    cases = [
        case
        for group in yaml.safe_load(RULES.joinpath("tests.yaml").read_text("utf-8"))["tests"]
        for case in group.get("alert_rule_test", [])
    ]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == set(NAMES)
    silent = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert silent == set(NAMES) - {"Watchdog"}


def test_rules_are_found_as_data_of_the_package() -> None:
    assert rules_text() == RULES.joinpath("tallystick.rules.yaml").read_text("utf-8")
    assert len(set(NAMES)) == len(ALERTS) > 0


@each_alert
def test_names_share_the_prefix(alert: dict[str, Any]) -> None:
    assert re.fullmatch(r"Tallystick([A-Z][a-z]+)+|Watchdog", alert["alert"])


@each_alert
def test_severity_says_page_or_ticket_and_only_the_watchdog_says_neither(
    alert: dict[str, Any],
) -> None:
    allowed = {"none"} if alert["alert"] == "Watchdog" else {"critical", "warning"}
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
    used = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["description"]))
    families = [FAMILY_OF[name] for name in metrics_in(alert["expr"]) & FAMILY_OF.keys()]
    assert used <= LABELS_OF_PROMETHEUS.union(*(family.labels for family in families))


@each_alert
def test_runbook_annotation_is_one_or_two_sentences_that_name_a_command(
    alert: dict[str, Any],
) -> None:
    runbook = alert["annotations"]["runbook"]
    assert runbook.endswith(".")
    assert len(re.findall(r"\.(?=\s|$)", runbook)) <= 2
    assert re.search(r"`tallystick \w+", runbook)


@each_alert
def test_runbook_url_leads_to_a_page_that_is_there(alert: dict[str, Any]) -> None:
    assert alert["annotations"]["runbook_url"] == RUNBOOK_URL + alert["alert"]
    assert alert["alert"] in PAGES


@each_alert
def test_annotations_hold_nothing_but_what_a_receiver_can_rely_on(alert: dict[str, Any]) -> None:
    assert alert["annotations"].keys() == {"summary", "description", "runbook", "runbook_url"}


@each_alert
def test_every_metric_of_every_expression_is_in_the_catalog(alert: dict[str, Any]) -> None:
    # `up` is Prometheus's own word on the scrape, and `vector(1)` needs no metric.
    assert metrics_in(alert["expr"]) - {"up"} - {"time"} <= FAMILY_OF.keys()
    assert metrics_in(alert["expr"]) or alert["alert"] == "Watchdog"


@each_alert
def test_every_matcher_names_a_label_and_a_value_that_the_catalog_lists(
    alert: dict[str, Any],
) -> None:
    for metric, label, value in matchers_in(alert["expr"]):
        if metric == "up":
            continue
        known = FAMILY_OF[metric].labels[label]
        assert set(value.split("|")) <= (STATES[known] if isinstance(known, Given) else set(known))


@each_alert
def test_two_exporters_of_one_store_never_count_twice(alert: dict[str, Any]) -> None:
    bare = re.sub(r"absent\([a-z_]+\)|up\{[^}]*\}", "", alert["expr"])
    series = len(re.findall(r"\btallystick_[a-z_]+", bare))
    once = len(re.findall(r"\b(?:max|min) without \(instance\b", bare))
    assert once >= series - bare.count("resets(")


def test_every_runbook_page_belongs_to_an_alert() -> None:
    assert sorted(NAMES) == PAGES


@each_page
def test_runbook_page_says_what_it_means_where_to_look_what_to_decide_and_when_it_is_over(
    name: str,
) -> None:
    lines = (RUNBOOKS / f"{name}.md").read_text("utf-8").splitlines()
    headings = [line for line in lines if line.startswith("#")]
    assert headings == [
        f"# {name}",
        "## What it means",
        "## First look",
        "## Decide",
        "## It is over when",
    ]


@each_page
def test_runbook_page_names_only_commands_and_metrics_that_exist(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text("utf-8")
    annotations = next(alert["annotations"] for alert in ALERTS if alert["alert"] == name)
    verbs = re.findall(r"(?:`|^)tallystick ([a-z]+)", text, re.MULTILINE)
    verbs += re.findall(r"`tallystick ([a-z]+)", annotations["runbook"])
    assert verbs
    assert set(verbs) <= COMMANDS
    states = re.findall(r"--(?:state|to) ([a-z_]+)", text + annotations["runbook"])
    assert set(states) <= set(State)
    known = FAMILY_OF.keys() | {family.name for family in FAMILIES}
    assert set(re.findall(r"\btallystick_[a-z_]+\b", text)) <= known
