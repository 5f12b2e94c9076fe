"""Every alert has its page, and what the page tells to type prints what the page shows."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.jobs.states import State
from tallystick.metrics.catalog import FAMILIES
from tests.docs.pages import COMMANDS, sections
from tests.metrics.tools import BY_NAME, PACKAGES, RECORDED
from tests.runbooks.pages import MAY_FAIL, PAGES, missing, perform, scene_of, steps
from tests.runbooks.scene import MODULE
from tests.server.conftest import Server

HEADINGS = ["What it means", "Who is hurt", "First look", "Decide", "Resolve", "It is over when"]

each_page = pytest.mark.parametrize("name", PAGES)


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert sorted(PAGES) == sorted(BY_NAME)


@each_page
def test_a_page_answers_the_six_questions_of_whoever_is_woken(name: str) -> None:
    text = PAGES[name].read_text("utf-8")
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert all(part.strip() for part in sections(PAGES[name]).values())


@each_page
def test_the_first_look_is_a_command_and_what_it_prints(name: str) -> None:
    first = sections(PAGES[name])["First look"]
    commands = re.findall(r"^\$ (.+)$", first, re.MULTILINE)
    assert any(command.startswith("tallystick ") for command in commands)


@each_page
def test_every_command_is_shown_with_what_it_prints(name: str) -> None:
    bare = [step.command for step in steps(PAGES[name]) if not step.sample and not step.goes_on]
    quiet = {"alertmanager_notifications_failed_total > 0"}  # nothing, where all is well
    assert [one for one in bare if not any(word in one for word in quiet)] == []


@each_page
def test_the_decision_is_a_list_of_questions_in_the_order_in_which_to_ask_them(name: str) -> None:
    decide = sections(PAGES[name])["Decide"]
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", decide, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 3


@each_page
def test_a_page_names_only_commands_states_and_metrics_that_exist(name: str) -> None:
    text = PAGES[name].read_text("utf-8") + BY_NAME[name]["annotations"]["runbook"]
    verbs = set(re.findall(r"(?:`|^\$ )tallystick ([a-z]+)", text, re.MULTILINE))
    assert verbs
    assert verbs <= set(COMMANDS)
    assert set(re.findall(r"--(?:state|to) ([a-z_]+)", text)) <= set(State)
    known = {name for family in FAMILIES for name in (family.name, *family.sample_names())}
    assert set(re.findall(r"\btallystick_[a-z_]+\b", text)) <= known
    assert set(re.findall(r"\btallystick:[a-z_:]+\b", text)) <= RECORDED


@each_page
def test_a_page_uses_no_program_but_ours_and_those_that_are_installed_with_the_servers(
    name: str,
) -> None:
    used = {step.words[0] for step in steps(PAGES[name])}
    assert used <= {"tallystick", *PACKAGES}


@pytest.mark.parametrize(
    ("sample", "printed"),
    [
        (["no actions"], "1 action\n"),
        (["b", "a"], "a\nb\n"),
        (["ok  clock  steady …"], "ok  clock  jumps\n"),
        (["…", "end"], "begin\n"),
    ],
)
def test_a_sample_that_is_not_printed_is_noticed(sample: list[str], printed: str) -> None:
    assert missing(sample, printed)


def test_chance_does_not_make_a_sample_wrong() -> None:
    sample = ["id 420d76024f206e24 at 2031-07-04T20:04:52.735Z", "…", "took 3.1 s …"]
    printed = "id  0af7651916cd43dd at 2026-11-29T20:39:49.847Z\nx\ny\ntook 12 s, and more\n"
    assert missing(sample, printed) == []


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("s"))
    server.start()
    yield server
    server.stop()


@pytest.mark.server
@each_page
def test_every_command_of_ours_runs_and_prints_what_the_page_shows(
    name: str, shared_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_REDIS_URL", shared_server.url)
    monkeypatch.setenv("TALLYSTICK_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TALLYSTICK_ACTIONS", MODULE)
    monkeypatch.setenv("TALLYSTICK_NAMESPACE", name)
    ran = 0
    with scene_of(name, shared_server.url, name, tmp_path) as scene:
        for step in steps(PAGES[name]):
            if step.ours and not step.goes_on:
                status, printed = perform(step, name, scene)
                assert status in ({0, 1} if step.words[1] in MAY_FAIL else {0}), printed
                assert missing(step.sample, printed) == [], printed
                ran += 1
    assert ran > 0
