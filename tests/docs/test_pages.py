"""The pages hang together: links lead somewhere, commands exist, nothing is of this machine."""

import re
import sys
from pathlib import Path

import pytest

from tests.docs.pages import (
    ARCHITECTURE,
    COMMANDS,
    DOCS,
    PAGES,
    README,
    ROOT,
    anchors,
    blocks,
    code_spans,
    inline,
    name_of,
)

EVERYWHERE = {"--help", "-h", "--actions"}


def links(page: Path) -> list[str]:
    """The targets of a page's links within the repository."""
    targets = [
        str(token.attrs["href"]) for token in inline(page.read_text()) if token.type == "link_open"
    ]
    return [target for target in targets if "://" not in target]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_page_and_to_a_heading_on_it(page: Path) -> None:
    dead = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            dead.append(target)
    assert dead == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached = {(DOCS / target.partition("#")[0]).resolve() for target in links(DOCS / "index.md")}
    ours = {page for page in PAGES if page.parent.name != "runbooks"}
    assert ours - reached - {DOCS / "index.md", ARCHITECTURE} == set()
    assert DOCS / "runbooks" in reached


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_begins_with_its_one_title(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert prose.startswith("# ")
    assert len(re.findall(r"^# ", prose, flags=re.MULTILINE)) == 1


def typed(code: str) -> str:
    """What is typed of a block: if it shows a prompt, the lines behind it."""
    prompts = [line.removeprefix("$ ") for line in code.splitlines() if line.startswith("$ ")]
    return "\n".join(prompts) if prompts else code


def calls(page: Path) -> list[tuple[str, str]]:
    """Every call of `tallystick COMMAND` in a page's code, with what follows it."""
    shell = [typed(code) for _, code in blocks(page, "sh", "console", "text", "json", "ini")]
    code = "\n".join([*shell, *code_spans(page.read_text())]).replace("\\\n", " ")
    return [
        (found[1], found[2])
        for line in code.splitlines()
        if not line.lstrip().startswith("redis-cli")
        for found in re.finditer(r"\btallystick ([a-z]+)\b([^|;#]*)", line)
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if calls(page)], ids=name_of)
def test_every_command_that_a_page_shows_exists_with_its_options(page: Path) -> None:
    for name, rest in calls(page):
        assert name in COMMANDS
        known = {spelling for given in COMMANDS[name].params for spelling in given.opts}
        used = set(re.findall(r"(?<!\S)\[?(--[a-z-]+|-[a-z])(?=[\s=\]]|$)", rest))
        assert used <= known | EVERYWHERE, f"tallystick {name}{rest}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_names_a_path_of_the_machine_that_it_was_written_on(page: Path) -> None:
    text = page.read_text()
    for place in (str(ROOT), str(Path.home()), sys.prefix, "/home/"):
        assert place not in text


def test_the_readme_stays_short_and_opens_with_two_commands() -> None:
    assert len(README.read_text().splitlines()) <= 220
    commands = [line.partition("#")[0].strip() for line in blocks(README, "sh")[0][1].splitlines()]
    assert commands == ["make demo", "make test"]
