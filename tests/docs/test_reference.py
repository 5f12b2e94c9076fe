"""What the reference says is so, and what is so the reference says."""

import ast
import importlib
import inspect
import itertools
import json
import logging
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typer.core import TyperCommand, TyperOption

import tallystick
from tallystick import (
    Action,
    ActionRecord,
    Context,
    JournalEntry,
    OutOfBand,
    Policy,
    Protection,
    Settings,
    State,
    Tallystick,
    TallystickError,
    Verdict,
    action,
)
from tallystick.jobs import decision, telling
from tallystick.jobs.decision import Lease, Reply, Seen, Situation, Stage, decide
from tallystick.jobs.keys import Keys
from tallystick.jobs.overview import Calling, Overview, Problem, Stop, UnderWay, Waiting
from tallystick.jobs.record import Line
from tallystick.jobs.states import NEXT, mermaid
from tallystick.testing import POINTS, Bench
from tests.docs.pages import (
    ARCHITECTURE,
    COMMANDS,
    DOCS,
    PAGES,
    README,
    ROOT,
    blocks,
    code_spans,
    firsts,
    name_of,
    options,
    root_command,
    rows,
    run_command,
    sections,
)

REFERENCE = DOCS / "reference"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


# --- the command line ------------------------------------------------------------------------

CLI = REFERENCE / "cli.md"


def documented_options(section: str) -> set[str]:
    return {span.split()[0] for span in firsts(section) if span.startswith("-")}


def usage(name: str) -> str:
    """The line that shows how a command is called."""
    found = re.search(r"```text\n(.+)\n```", sections(CLI)[name])
    assert found, name
    return found[1]


def test_every_command_is_documented_and_every_documented_command_exists() -> None:
    shown = re.findall(r"^tallystick ([a-z]+)", CLI.read_text(), flags=re.MULTILINE)
    assert sorted(shown) == sorted(COMMANDS)
    assert set(COMMANDS) <= sections(CLI).keys()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_of_a_command_is_documented_and_every_documented_one_exists(
    name: str,
) -> None:
    command = COMMANDS[name]
    assert isinstance(command, TyperCommand)
    assert documented_options(sections(CLI)[name]) == options(command)


def test_the_options_before_a_command_are_documented() -> None:
    before = CLI.read_text().partition("\n## ")[0]
    assert documented_options(before) - {"--help", "-h"} == options(root_command())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_usage_line_names_each_option_and_brackets_the_optional_ones(name: str) -> None:
    line = usage(name)
    for given in COMMANDS[name].params:
        if not isinstance(given, TyperOption):
            assert f" {str(given.name).upper()}" in line
            continue
        assert given.opts[0] in line
        assert (f"[{given.opts[0]}" in line) is not given.required


def test_every_field_of_an_action_is_documented() -> None:
    section = sections(CLI)["show"].partition("| field |")
    assert set(firsts(section[1] + section[2])) == ActionRecord.model_fields.keys()


def test_every_field_of_a_policy_is_documented() -> None:
    [told] = [row[2] for row in rows(sections(CLI)["show"]) if row[0] == "`policy`"]
    assert set(code_spans(told)) == Policy().as_json().keys()


def test_every_field_of_the_status_is_documented_with_those_inside() -> None:
    section = sections(CLI)["status"].partition("| field |")
    told = rows(section[1] + section[2])
    names = [span for row in told for span in code_spans(row[0])]
    assert set(names) == Overview.model_fields.keys() | Overview.model_computed_fields.keys()
    inside: dict[str, type[BaseModel]] = {
        "problems": Problem,
        "calling": Calling,
        "waiting": Waiting,
        "under_way": UnderWay,
        "stops": Stop,
    }
    meanings = {code_spans(row[0])[0]: set(code_spans(row[2])) for row in told}
    for name, kind in inside.items():
        assert kind.model_fields.keys() <= meanings[name], name


LOGS = DOCS / "howto/logs-and-traces.md"


def test_every_field_of_a_log_line_is_documented(caplog: pytest.LogCaptureFixture) -> None:
    record = logging.LogRecord("x", logging.INFO, "x", 1, "x", None, None)
    told = {span for row in rows(sections(LOGS)["Log lines"]) for span in code_spans(row[0])}
    line = Line(1, 0, "", "unknown", "a", "w", 1, {"event": "e", "trace": TRACE}, "", 0)
    telling.stored(line, id="a", action="b")
    found = caplog.records[-1]
    fields = found.__dict__.keys() - record.__dict__.keys() - {"message", "asctime"}
    assert fields <= told
    assert {"action_id", "from_state", "state", "trace_id", "next"} <= fields


def test_every_span_and_attribute_is_documented() -> None:
    section = sections(LOGS)["Traces"]
    sources = [path.read_text() for path in (ROOT / "tallystick/jobs").glob("*.py")]
    names = {
        name for text in sources for name in re.findall(r"(?:span|spanned)\(\s*\"(\w+)\"", text)
    }
    assert names >= {"propose", "run", "verification", "rollback", "precondition", "resolve"}
    for name in names | {"effect", "undo", "approve", "reject", "cancel", "acknowledge"}:
        assert re.search(rf"tallystick\.{name}\b|\.{name}\b", section), name


def test_every_field_of_a_journal_line_is_documented() -> None:
    [told] = [row[1] for row in rows(sections(CLI)["history"]) if row[0] == "`--json`"]
    assert set(code_spans(told)) == JournalEntry.model_fields.keys()
    page = firsts(sections(DOCS / "concepts/journal.md")["A line"])
    assert set(page) == JournalEntry.model_fields.keys()


@pytest.mark.server
def test_the_fields_of_an_action_type_are_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "documented_scale.py"
    module.write_text(blocks(README, "python")[0][1])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TALLYSTICK_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("TALLYSTICK_REDIS_URL", raising=False)
    assert run_command(["actions", "--actions", "documented_scale", "--json"]) == 0
    [told] = [row[1] for row in rows(sections(CLI)["actions"]) if row[0] == "`--json`"]
    [kind] = json.loads(capsys.readouterr().out)
    assert set(code_spans(told)) == kind.keys()


def test_a_wrong_call_ends_with_the_documented_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    statuses = [row[0] for row in rows(sections(CLI)["Exit status"])]
    assert statuses == ["0", "1", "2", "130"]
    assert run_command(["show"]) == 2
    assert run_command(["--help"]) == 0
    assert "show" in capsys.readouterr().out


# --- settings --------------------------------------------------------------------------------

SETTINGS = REFERENCE / "settings.md"
VARIABLES = {f"TALLYSTICK_{name.upper()}": field for name, field in Settings.model_fields.items()}


def test_every_setting_is_documented_and_every_documented_setting_exists() -> None:
    assert firsts(SETTINGS.read_text()) == list(VARIABLES)


def test_documented_defaults_are_the_defaults() -> None:
    told = {code_spans(row[0])[0]: row[1] for row in rows(SETTINGS.read_text())}
    plain = {
        name: field.default
        for name, field in VARIABLES.items()
        if isinstance(field.default, str | int | float)
    }
    assert plain
    assert {name: told[name].strip("`") for name in plain} == {
        name: str(default) for name, default in plain.items()
    }
    assert told["TALLYSTICK_EFFECT_DEADLINE_SECONDS"] == "two thirds of the lease"
    assert Settings.load(lease_seconds=15).effect_deadline == 10


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_names_a_setting_that_does_not_exist(page: Path) -> None:
    named = set(re.findall(r"\bTALLYSTICK_[A-Z_]+\b", page.read_text()))
    assert named <= {*VARIABLES, "TALLYSTICK_DEBUG"}


# --- states ----------------------------------------------------------------------------------

STATES = REFERENCE / "states.md"


def test_every_state_is_documented() -> None:
    before = STATES.read_text().partition("\n## ")[0]
    assert firsts(before) == [str(state) for state in State]


def test_the_documented_arrows_are_those_of_the_table() -> None:
    told = {
        code_spans(row[0])[0]: set(code_spans(row[1])) for row in rows(sections(STATES)["Arrows"])
    }
    assert told == {str(state): {str(to) for to in after} for state, after in NEXT.items()}


@pytest.mark.parametrize("page", [ARCHITECTURE, STATES], ids=name_of)
def test_the_diagram_is_the_one_that_the_table_generates(page: Path) -> None:
    assert [drawn.rstrip("\n") for _, drawn in blocks(page, "mermaid")] == [mermaid()]


# --- errors ----------------------------------------------------------------------------------


def every_module() -> Iterator[Any]:
    for found in pkgutil.walk_packages(tallystick.__path__, "tallystick."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def errors() -> dict[str, str]:
    """Every error class that we define for others, with the module that it is imported from."""
    return {
        kind.__name__: module.__name__
        for module in every_module()
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and issubclass(kind, TallystickError)
        and kind.__module__ == module.__name__
        and not module.__name__.startswith("tallystick.demo")
    }


def test_every_error_is_documented_with_its_module_and_every_documented_one_exists() -> None:
    page = REFERENCE / "errors.md"
    told = {
        span: row[0]
        for row in rows(page.read_text())
        for span in code_spans(row[0])
        if "." not in span
    }
    defined = errors()
    assert told.keys() | {"TallystickError", "StoreError"} == defined.keys()
    assert "`StoreError`" in page.read_text()
    for name, cell in told.items():
        if defined[name] != "tallystick.core.errors":
            assert f"`{defined[name]}`" in cell


# --- Redis keys ------------------------------------------------------------------------------


def test_every_redis_key_is_documented_as_it_is_made() -> None:
    keys = Keys("tallystick")
    shown = {
        code_spans(row[1])[0]: code_spans(row[0])[0]
        for row in rows((REFERENCE / "redis-keys.md").read_text())
    }
    assert shown.keys() == public(Keys) - {"namespace"}
    for name, pattern in shown.items():
        made = getattr(keys, name)
        argument = re.findall(r"<\w+>", pattern)
        assert (made(*argument) if argument else made) == pattern


# --- Python ----------------------------------------------------------------------------------

PYTHON = REFERENCE / "python-api.md"


def test_every_public_name_is_documented() -> None:
    headings = " ".join(re.findall(r"^## (.+)$", PYTHON.read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", headings)) == set(tallystick.__all__)


def test_every_method_of_tallystick_is_documented_with_its_parameters() -> None:
    told = {}
    for span in firsts(sections(PYTHON)["`Tallystick`"]):
        name, _, given = span.partition("(")
        told[name] = re.findall(r"(\w+)(?==|,|\)|$)", re.sub(r"=[^,)]+", "", given))
    attributes = {"store", "registry", "signer", "keyring", "settings", "transport"}
    assert told.keys() == public(Tallystick) - attributes
    for name, parameters in told.items():
        method = inspect.getattr_static(Tallystick, name)
        if not isinstance(method, property):
            taken = list(inspect.signature(getattr(Tallystick, name)).parameters)
            assert parameters == [one for one in taken if one != "self"], name


def test_every_part_of_the_context_is_documented() -> None:
    told = {span.removesuffix("()") for span in firsts(sections(PYTHON)["`Context`"])}
    assert told == {field.name for field in fields(Context)} | {"remaining"}


def test_every_attribute_and_method_of_an_action_type_is_documented() -> None:
    section = sections(DOCS / "howto/write-an-action.md")["What you write"]
    told = {span.partition("(")[0] for span in firsts(section)}
    assert told == public(Action) | {"name", "rollback", "Params"}
    for span in firsts(section):
        name, _, given = span.partition("(")
        if given:
            taken = list(inspect.signature(getattr(Action, name)).parameters)[1:]
            assert given.removesuffix(")").split(", ") == taken


def test_every_argument_of_the_short_form_is_documented() -> None:
    section = sections(DOCS / "howto/write-an-action.md")["As a function"]
    [told] = [line for line in section.split("\n\n") if line.startswith("The short form takes")]
    arguments = set(inspect.signature(action).parameters) - {"name"}
    assert arguments <= set(code_spans(told))


def test_every_part_of_a_policy_is_documented() -> None:
    section = sections(DOCS / "howto/approve-and-policies.md")["Say who must agree"]
    assert firsts(section) == [field.name for field in fields(Policy)]


@pytest.mark.parametrize("page", [README, DOCS / "howto/choose-a-protection.md"], ids=name_of)
def test_every_protection_has_its_row(page: Path) -> None:
    told = [span for span in firsts(page.read_text()) if span in set(Protection)]
    assert told == [str(protection) for protection in Protection]


def test_every_call_and_every_crash_point_of_the_bench_is_documented() -> None:
    page = sections(DOCS / "howto/test-your-actions.md")
    calls = re.findall(r"bench\.(\w+)", " ".join(firsts(page["The bench"])))
    attributes = {"tally", "redis"}
    assert set(calls) == public(Bench) | attributes
    assert firsts(page["Crash it everywhere"]) == list(POINTS)


# --- the protocol ----------------------------------------------------------------------------


def test_the_documented_rules_are_those_of_the_decision_table() -> None:
    rules: dict[str, set[str]] = {}
    several: list[list[Any]] = [list(Stage), list(Protection), list(Seen), list(Reply)]
    switches = [[True, False]] * 5
    for stage, protection, seen, reply, lease, *known in itertools.product(
        *several, list(Lease), *switches
    ):
        intact, rewound, attempts_left, go, only_sender = known
        at = Situation(
            stage, protection, seen, reply, intact, rewound, lease, attempts_left, go, only_sender
        )
        decided = decide(at)
        rules.setdefault(str(decided.rule), set()).add(decided.step.value)
    steps = {step.value for step in decision.Step}
    told = {
        row[0]: {span for span in code_spans(row[2]) if span in steps}
        for row in rows(sections(DOCS / "concepts/recovery.md")["The table"])
    }
    assert told == rules


def journal_events() -> set[str]:
    """Every event that some line of our code writes into the journal of an action."""
    found = set()
    for path in (ROOT / "tallystick/jobs").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                written = [
                    value
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant) and key.value == "event"
                ]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {
                "move",
                "intend",
            }:
                written = node.args[1:2]
            elif isinstance(node, ast.keyword) and node.arg == "event":
                written = [node.value]
            else:
                continue
            found |= {
                one.value
                for one in written
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
    return found


def test_every_event_of_the_journal_is_documented() -> None:
    section = sections(DOCS / "concepts/journal.md")["Events"]
    assert set(firsts(section)) == journal_events()


def test_a_clean_run_makes_as_many_round_trips_as_the_architecture_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = re.search(r"A clean run makes (\d+) Redis round trips", ARCHITECTURE.read_text())
    assert told
    world: list[int] = []

    class Count(Action):
        name, rollback = "count", OutOfBand("docs/count.md")

        class Params(BaseModel):
            number: int

        def observe(self, params: Any) -> Any:
            return len(world)

        def execute(self, params: Any, context: Context) -> None:
            world.append(params.number)

        def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
            return Verdict.equal(expected=before + 1, observed=now)

    bench = Bench(Count)
    bench.run(bench.approved("count", {"number": 1}))  # from here on the scripts are loaded
    id = bench.approved("count", {"number": 2})
    trips: list[Any] = []
    send: Any = bench.redis.execute_command

    def counted(*command: Any, **given: Any) -> Any:
        trips.append(command[0])
        return send(*command, **given)

    with monkeypatch.context() as watched:
        watched.setattr(bench.redis, "execute_command", counted)
        bench._runner().run(id)
    assert bench.state(id) is State.COMMITTED
    assert len(trips) == int(told[1])


def test_every_room_stands_in_the_architecture() -> None:
    rooms = {path.parent.name for path in (ROOT / "tallystick").glob("*/__init__.py")}
    before = ARCHITECTURE.read_text().partition("\n## ")[0]
    assert set(firsts(before)) == rooms
