"""Reads our pages (which there are, their blocks, tables, sections) and our command line."""

import re
from collections.abc import Iterator
from pathlib import Path

import typer.main
from markdown_it import MarkdownIt
from markdown_it.token import Token
from typer.core import TyperCommand, TyperGroup, TyperOption

from tallystick.cli import main
from tallystick.cli.common import app

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
DOCS = ROOT / "docs"
PAGES = sorted([README, ARCHITECTURE, *DOCS.rglob("*.md")])

run_command = main
"""The command line, whose import has registered every command with `app`."""


def root_command() -> TyperGroup:
    found = typer.main.get_command(app)
    assert isinstance(found, TyperGroup)
    return found


COMMANDS = root_command().commands


def options(command: TyperCommand | TyperGroup) -> set[str]:
    """All spellings of a command's options, but for those of help."""
    return {
        spelling
        for given in command.params
        if isinstance(given, TyperOption)
        for spelling in given.opts
    } - {"--help", "-h"}


def name_of(page: Path) -> str:
    """The page as the repository names it."""
    return page.relative_to(ROOT).as_posix()


def tokens(text: str) -> list[Token]:
    return MarkdownIt().enable("table").parse(text)


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """The fenced blocks of these languages, each with the number of its first line."""
    return [
        (token.map[0] + 1, token.content)
        for token in tokens(page.read_text())
        if token.type == "fence" and token.info in languages and token.map
    ]


def inline(text: str) -> Iterator[Token]:
    """Every piece of running text: words, code spans, links."""
    for token in tokens(text):
        yield from token.children or []


def code_spans(text: str) -> list[str]:
    return [token.content for token in inline(text) if token.type == "code_inline"]


def sections(page: Path) -> dict[str, str]:
    """The text under each heading of the second level."""
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The rows of all tables in a text, without their headings."""
    found: list[list[str]] = []
    body = False
    for token in tokens(text):
        if token.type in {"tbody_open", "tbody_close"}:
            body = token.type == "tbody_open"
        elif token.type == "tr_open" and body:
            found.append([])
        elif token.type == "inline" and body:
            found[-1].append(token.content)
    return found


def firsts(text: str) -> list[str]:
    """The code spans in the first cells of all tables of a text."""
    return [span for row in rows(text) for span in code_spans(row[0])]


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", ""))
    return words.replace(" ", "-")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {slug(heading) for heading in headings}
