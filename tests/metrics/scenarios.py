"""Scenarios for the alert rules, in the short form of `scenarios/*.yaml`, made into promtool's.

A scenario gives the series minute by minute, and for each alert what fires when: the labels that
differ between two of its kind, and the description as the person on call reads it. What is the
same for every firing (severity, summary, addresses) is the rule's own text.
"""

from pathlib import Path
from typing import Any, TypeAlias

import yaml

FOLDER = Path(__file__).parent / "scenarios"

Rule: TypeAlias = dict[str, Any]
Scenario: TypeAlias = dict[str, Any]


BOOKS = {
    book["rules"]: book
    for book in (yaml.safe_load(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.yaml")))
}
"""The scenarios of each rule file."""


def promtool_tests(rule_file: str, alerts: dict[str, Rule]) -> str:
    """What `promtool test rules` reads for this rule file."""
    book = BOOKS[rule_file]
    whole = {
        "rule_files": [rule_file],
        "evaluation_interval": book["evaluation_interval"],
        "tests": [_test(scenario, alerts) for scenario in book["scenarios"]],
    }
    return yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=10_000)


def _test(scenario: Scenario, alerts: dict[str, Rule]) -> dict[str, Any]:
    return {
        "name": scenario["name"],
        "interval": scenario.get("interval", "1m"),
        "input_series": [
            {"series": series, "values": str(values)}
            for series, values in scenario.get("series", {}).items()
        ],
        "alert_rule_test": [
            {
                "eval_time": at,
                "alertname": name,
                "exp_alerts": [_firing(alerts[name], told) for told in firing],
            }
            for name, times in scenario.get("alerts", {}).items()
            for at, firing in times.items()
        ],
        "promql_expr_test": [
            {
                "eval_time": query["at"],
                "expr": query["expr"],
                "exp_samples": [
                    {"labels": labels, "value": value} for labels, value in query["samples"].items()
                ],
            }
            for query in scenario.get("queries", [])
        ],
    }


def _firing(rule: Rule, told: dict[str, str]) -> dict[str, Any]:
    labels = {name: value for name, value in told.items() if name != "description"}
    return {
        "exp_labels": rule["labels"] | labels,
        "exp_annotations": rule["annotations"] | {"description": told["description"]},
    }
