"""The dashboards: the committed JSON is what the code builds, by our rules and Grafana's types.

tests/live/test_dashboards.py runs every query. What only a Grafana could show is said in the docs.
"""

import copy
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.grafana.build.write import FOLDER, texts
from tallystick.metrics.catalog import FAMILIES
from tallystick.metrics.shipped import DASHBOARDS, shipped
from tests.docs.pages import COMMANDS, DOCS, rows, sections
from tests.metrics.tools import BY_NAME, RECORDED

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "deploy" / "grafana"
RUNBOOKS = ROOT / "docs" / "runbooks"

BOARDS: dict[str, dict[str, Any]] = {name: json.loads(text) for name, text in texts().items()}
SAMPLES = {name for family in FAMILIES for name in family.sample_names()}
OF_OTHERS = {
    "ALERTS",
    "ALERTS_FOR_STATE",
    "scrape_duration_seconds",
    "prometheus_rule_evaluation_failures_total",
    "alertmanager_notifications_failed_total",
}
FOR_AD_HOC_USE = {
    "tallystick_history_rewinds_total",
    "tallystick_journal_lines_total",
    "tallystick_replica_barriers_missed_total",
    "tallystick_replica_barriers_total",
}
"""Exported for the alert on a Redis that went back, and for those who ask; in no panel."""
OF_EACH_EXPORTER = {"tallystick_build_info", "tallystick_exporter_collect_errors_total"}
"""What two exporters of one store do not show alike."""


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


EVERY_PANEL = [
    pytest.param(panel, id=f"{board['uid']}: {panel['title']}")
    for board in BOARDS.values()
    for panel in panels(board)
]
QUERIES = {
    f"{board['uid']}: {panel['title']} {target['refId']}": str(target["expr"])
    for board in BOARDS.values()
    for panel in panels(board)
    for target in panel.get("targets", [])
}
each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
each_panel = pytest.mark.parametrize("panel", EVERY_PANEL)
each_query = pytest.mark.parametrize("expression", QUERIES.values(), ids=QUERIES)


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression selects: each stands before a brace or a range."""
    rest = re.sub(r'"[^"]*"', "", expression)
    return set(re.findall(r"\b([a-zA-Z_:][\w:]*)(?=[{[])", rest))


# --- code and JSON -------------------------------------------------------------------------------


def test_the_committed_dashboards_are_those_that_the_code_builds() -> None:
    """If this fails: python -m deploy.grafana.build"""
    committed = {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}
    assert committed.keys() == texts().keys()
    for name, text in texts().items():
        assert committed[name] == text, name


# --- our rules -----------------------------------------------------------------------------------


@each_board
def test_a_dashboard_is_named_by_its_uid_and_cannot_be_edited_in_grafana(
    board: dict[str, Any],
) -> None:
    assert f"{board['uid']}.json" in BOARDS
    assert board["editable"] is False
    assert board["title"].startswith("Tallystick")
    assert board["description"].endswith((".", "?"))
    assert board["tags"] == ["tallystick"]


@each_board
def test_ids_are_unique_and_panels_fill_their_rows_without_overlapping(
    board: dict[str, Any],
) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert min(ids) > 0
    taken: dict[tuple[int, int], int] = {}
    for panel in board["panels"]:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, panel["title"]
                taken[x, y] = panel["id"]
    bottom = max(y for _, y in taken) + 1
    assert set(taken) == {(x, y) for x in range(24) for y in range(bottom)}


@each_board
def test_the_data_source_and_the_job_are_chosen_by_variables(board: dict[str, Any]) -> None:
    source, *others = board["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    assert others[0]["name"] == "job"
    for variable in others:
        assert variable["type"] == "query"
        assert variable["datasource"]["uid"] == "${datasource}"
        assert variable["multi"] is True
        assert variable["current"]["value"] == "$__all"
        assert (
            metrics_in(variable["query"])
            | set(re.findall(r"label_values\((\w+)[,{]", variable["query"]))
            <= SAMPLES
        )


@each_panel
def test_a_panel_says_what_it_shows_what_to_do_and_in_which_unit(panel: dict[str, Any]) -> None:
    assert re.match(r"[A-Z]", panel["title"])
    if panel["type"] == "text":
        return
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        assert target["datasource"]["uid"] == "${datasource}"
        assert target["legendFormat"]
    refs = [target["refId"] for target in panel["targets"]]
    assert len(set(refs)) == len(refs)


@each_panel
def test_a_panel_of_one_look_asks_for_one_and_says_what_nothing_means(
    panel: dict[str, Any],
) -> None:
    for target in panel.get("targets", []):
        assert target["instant"] == (panel["type"] in {"stat", "table"})
        assert target["range"] == (panel["type"] == "timeseries")
    if panel["type"] in {"stat", "table"}:
        assert panel["fieldConfig"]["defaults"]["noValue"]


@each_query
def test_a_query_names_metrics_that_exist(expression: str) -> None:
    assert metrics_in(expression) <= SAMPLES | RECORDED | OF_OTHERS
    assert metrics_in(expression)


@each_query
def test_a_query_of_ours_is_of_the_chosen_jobs_and_counts_two_exporters_once(
    expression: str,
) -> None:
    ours = re.findall(r"(\w*tallystick[\w:]*)\{([^}]*)\}", expression)
    assert len(ours) == len(re.findall(r"tallystick[_:]", expression))
    for name, matchers in ours:
        assert 'job=~"$job"' in matchers, name
        counted_once = rf"(max|min)( without \(instance\)| by \([^)]*\))? ?\((\w+\()?{name}\{{"
        assert re.search(counted_once, expression) or name in OF_EACH_EXPORTER, name


@each_query
def test_a_rate_is_over_an_interval_that_grafana_chooses(expression: str) -> None:
    for window in re.findall(r"\[([^]]*)\]", expression):
        assert window in {"$__rate_interval", "$__range", "*"}, window  # [*] is a class


def test_every_metric_that_is_exported_is_shown_or_kept_for_those_who_ask() -> None:
    text = "\n".join(QUERIES.values())
    shown = {
        family.name
        for family in FAMILIES
        if any(re.search(rf"\b{name}\b", text) for name in family.sample_names())
    }
    assert {family.name for family in FAMILIES} - shown == FOR_AD_HOC_USE


def test_every_metric_of_an_action_type_is_on_the_dashboard_of_action_types() -> None:
    text = json.dumps(BOARDS["tallystick-action-type.json"])
    for family in FAMILIES:
        if "action_type" in family.labels:
            assert family.name in text


def test_what_a_panel_advises_exists() -> None:
    text = json.dumps(BOARDS, ensure_ascii=False)
    for command in re.findall(r"`tallystick (\w+)", text):
        assert command in COMMANDS
    linked = re.findall(r"https://tallystick\.example/runbooks/(\w+)", text)
    assert linked
    for name in linked:
        assert name in BY_NAME
        assert (RUNBOOKS / f"{name}.md").exists()


def test_the_alerts_lead_to_a_dashboard_that_is_there() -> None:
    for alert in BY_NAME.values():
        name = alert["annotations"]["dashboard_url"].rpartition("/")[2]
        assert f"{name}.json" in BOARDS


# --- Grafana's types -----------------------------------------------------------------------------

FAULTS: dict[str, Any] = {
    "a width that is a text": lambda board: board["panels"][1]["gridPos"].update(w="6"),
    "a name that nobody knows": lambda board: board.update(refersh="30s"),
    "a mode that there is not": lambda board: board["panels"][1]["options"].update(colorMode="x"),
    "a query without an expression": lambda board: board["panels"][1]["targets"][0].pop("expr"),
    "a kind of panel that is not ours": lambda board: board["panels"][1].update(type="singlestat"),
    "a variable with an interval": lambda board: board["templating"]["list"][0].update(auto=True),
}


def node(name: str) -> str:
    """The path of a program of Node.js. A newcomer's machine may be without it, CI may not."""
    found = shutil.which(name) or ""
    if not found:
        unproved = f"{name} is missing, so the types of the dashboards are unproved"
        pytest.fail(unproved) if os.environ.get("CI") else pytest.skip(unproved)
    return found


def complaints(folder: Path) -> dict[str, str]:
    """What the TypeScript compiler says of each generated file, by its name."""
    command = [node("node"), "node_modules/typescript/bin/tsc", "--pretty", "false"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        if told := re.match(r"(\S+)\.ts\(\d+,\d+\): (error .*)", line):
            found.setdefault(Path(told[1]).name, told[2])
    assert (done.returncode == 0) == (not found), done.stdout
    return found


@pytest.fixture
def types(tmp_path: Path) -> Iterator[Path]:
    """A folder with the compiler and Grafana's types, as package-lock.json pins them."""
    for name in ("package.json", "package-lock.json", "tsconfig.json", "board.ts"):
        shutil.copy(GRAFANA / "types" / name, tmp_path)
    command = [node("npm"), "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=100)
    (tmp_path / "generated").mkdir()
    yield tmp_path
    shutil.rmtree(tmp_path / "node_modules")


def test_the_dashboards_are_of_the_types_that_grafana_publishes(types: Path) -> None:
    """And what is not, is seen: each fault by itself."""
    cases = {name.removesuffix(".json"): board for name, board in BOARDS.items()}
    for number, fault in enumerate(FAULTS.values()):
        spoilt = copy.deepcopy(BOARDS["tallystick.json"])
        fault(spoilt)
        cases[f"fault-{number}"] = spoilt
    for name, board in cases.items():
        text = 'import type { Board } from "../board";\nexport const board: Board = '
        (types / "generated" / f"{name}.ts").write_text(text + json.dumps(board, indent=1) + ";\n")
    found = complaints(types)
    assert {f"fault-{number}" for number in range(len(FAULTS))} == set(found), found


# --- provisioning --------------------------------------------------------------------------------


def provisioned(kind: str) -> dict[str, Any]:
    [path] = (GRAFANA / "provisioning" / kind).iterdir()
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    assert found["apiVersion"] == 1
    return found


def test_grafana_is_given_the_data_source_of_the_stack() -> None:
    [source] = provisioned("datasources")["datasources"]
    assert (source["type"], source["access"]) == ("prometheus", "proxy")
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"] is True
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]


def test_grafana_is_given_the_dashboards_from_where_compose_puts_them() -> None:
    [provider] = provisioned("dashboards")["providers"]
    grafana = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["grafana"]
    assert f"monitoring:{provider['options']['path']}:ro" in grafana["volumes"]
    assert provider["allowUiUpdates"] is False
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert home.parent == Path(provider["options"]["path"])
    assert home.name in BOARDS


def test_the_dashboards_are_written_out_with_the_rules_and_lead_to_the_runbooks_of_a_site() -> None:
    assert set(BOARDS) == set(DASHBOARDS)
    texts = shipped(runbooks="https://wiki.corp/t")
    assert "https://wiki.corp/t/TallystickOutcomeUnknown" in texts["tallystick.json"]
    assert "tallystick.example" not in texts["tallystick.json"]
    assert json.loads(texts["tallystick.json"])["uid"] == "tallystick"


# --- the page about it ---------------------------------------------------------------------------


def test_the_page_tells_of_every_dashboard_and_of_each_of_its_rows() -> None:
    told = sections(DOCS / "reference" / "dashboards.md")
    for board in BOARDS.values():
        titles = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
        assert [row[0] for row in rows(told[board["uid"]])] == titles
