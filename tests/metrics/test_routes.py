"""Where each alert goes, by Alertmanager's own word, and what silences what."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tallystick.metrics.shipped import RECEIVERS
from tests.metrics.tools import ALERTS, BY_NAME, TEXTS, run, write_shipped

CONFIG: dict[str, Any] = yaml.safe_load(TEXTS["alertmanager.yaml"])

SECOND = {"TallystickNotificationsFailing", "TallystickAlertsUndelivered"}
"""Alerts that say that alerts do not arrive: they must not rest on one channel."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_shipped(tmp_path)
    return tmp_path


def expected(alert: dict[str, Any]) -> str:
    if alert["alert"] == "Watchdog":
        return "dead-mans-switch"
    receiver = {"critical": "pager", "warning": "tickets"}[alert["labels"]["severity"]]
    return f"second-channel,{receiver}" if alert["alert"] in SECOND else receiver


def test_amtool_accepts_the_configuration(folder: Path) -> None:
    said = run("amtool", "check-config", "alertmanager.yaml", cwd=folder)
    assert f"{len(RECEIVERS)} receivers" in said


@pytest.mark.parametrize("labels", [[], ["action_type=bank.transfer"]], ids=["bare", "typed"])
@pytest.mark.parametrize("alert", ALERTS, ids=list(BY_NAME))
def test_each_alert_goes_to_the_receiver_of_its_severity(
    alert: dict[str, Any], labels: list[str], folder: Path
) -> None:
    run(
        "amtool",
        "config",
        "routes",
        "test",
        "--config.file=alertmanager.yaml",
        f"--verify.receivers={expected(alert)}",
        f"alertname={alert['alert']}",
        f"severity={alert['labels']['severity']}",
        *labels,
        cwd=folder,
    )


def test_an_alert_of_nobody_is_read_by_somebody(folder: Path) -> None:
    run(
        "amtool",
        "config",
        "routes",
        "test",
        "--config.file=alertmanager.yaml",
        "--verify.receivers=tickets",
        "alertname=SomethingElse",
        cwd=folder,
    )


def test_the_receivers_are_those_that_can_be_named_when_the_files_are_written() -> None:
    assert [receiver["name"] for receiver in CONFIG["receivers"]] == list(RECEIVERS)


def test_written_for_a_site_no_address_of_the_example_is_left(tmp_path: Path) -> None:
    receivers = {name: f"http://127.0.0.1:9/{name}" for name in RECEIVERS}
    write_shipped(
        tmp_path,
        runbooks="https://wiki.corp/tallystick",
        dashboards="https://grafana.corp/d/",
        receivers=receivers,
    )
    text = "".join(path.read_text() for path in tmp_path.iterdir())
    assert "tallystick.example" not in text
    assert "https://wiki.corp/tallystick/TallystickNoWorkers" in text
    assert "https://grafana.corp/d/tallystick" in text
    written = yaml.safe_load((tmp_path / "alertmanager.yaml").read_text())
    assert {
        receiver["name"]: receiver["webhook_configs"][0]["url"] for receiver in written["receivers"]
    } == receivers
    run("amtool", "check-config", "alertmanager.yaml", cwd=tmp_path)


# --- inhibition ----------------------------------------------------------------------------------


def named(matchers: list[str]) -> set[str]:
    """The alerts of ours that these matchers fit, by their names and severities."""
    fitting = set(BY_NAME)
    for matcher in matchers:
        label, sign, value = re.fullmatch(r'(\w+)(=~?)"([^"]*)"', matcher).groups()  # type: ignore[union-attr]
        pattern = value if sign == "=~" else re.escape(value)
        values = {
            name: name if label == "alertname" else alert["labels"][label]
            for name, alert in BY_NAME.items()
        }
        fitting &= {name for name, found in values.items() if re.fullmatch(pattern, found)}
    return fitting


INHIBITED = [
    (source, target)
    for rule in CONFIG["inhibit_rules"]
    for source in sorted(named(rule["source_matchers"]))
    for target in sorted(named(rule["target_matchers"]))
]


def test_every_name_in_an_inhibition_is_an_alert() -> None:
    matchers = [
        value
        for rule in CONFIG["inhibit_rules"]
        for value in re.findall(r'alertname=~?"([^"]*)"', str(rule))
    ]
    names = {name for value in matchers for name in value.split("|")} - {"Tallystick.*"}
    assert names <= BY_NAME.keys()
    assert names


def test_what_is_silenced_by_blindness_is_never_a_page_of_a_failed_effect() -> None:
    """A cause may silence what follows from it, but never an effect that a person must look at."""
    effects = {name for name, alert in BY_NAME.items() if "attention_open:known" in alert["expr"]}
    pages = {name for name in effects if BY_NAME[name]["labels"]["severity"] == "critical"}
    assert len(pages) == 4
    assert pages & {target for _, target in INHIBITED} == set()


def test_a_silenced_alert_has_a_page_that_tells_of_its_cause() -> None:
    sources = {source for source, _ in INHIBITED}
    assert {BY_NAME[source]["labels"]["severity"] for source in sources} == {"critical"}


def test_nothing_silences_itself_or_the_watchdog_or_the_word_that_alerts_do_not_arrive() -> None:
    targets = {target for _, target in INHIBITED}
    assert all(source != target for source, target in INHIBITED)
    assert not targets & {"Watchdog", "TallystickNotificationsFailing", "TallystickExporterDown"}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("TallystickExporterDown", "TallystickVerificationFailureHealed"),
        ("TallystickRedisUnreachable", "TallystickStalled"),
        ("TallystickNoWorkers", "TallystickOverdue"),
        ("TallystickCountersWentBack", "TallystickWorkHorseKilled"),
        ("TallystickErrorBudgetBurnFast", "TallystickErrorBudgetBurnSlow"),
    ],
)
def test_a_known_cause_silences_what_follows_from_it(source: str, target: str) -> None:
    assert (source, target) in INHIBITED
