"""How the house is built: five doors, small files, documented scripts, no pickle."""

import ast
import re
from pathlib import Path

import pytest

import tallystick
from tallystick import State

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tallystick"
DOORS = ("approvals", "jobs", "metrics", "rollback", "verifiers")

MODULES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = sorted(PACKAGE.rglob("*.lua"))
INITS = [module for module in MODULES if module.name == "__init__.py"]

MOST_LINES = 400


def within(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_tests_look_at_the_tree_that_they_belong_to() -> None:
    assert Path(tallystick.__file__).parent == PACKAGE
    assert len(MODULES) > 30
    assert len(SCRIPTS) > 5


# --- rooms and doors -----------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
def test_each_of_the_five_doors_leads_into_the_package(door: str) -> None:
    path = ROOT / door
    assert path.is_symlink()
    assert not path.readlink().is_absolute()
    assert path.resolve() == PACKAGE / door
    assert (path / "__init__.py").is_file()


def test_there_is_no_other_door() -> None:
    links = {path.name for path in ROOT.iterdir() if path.is_symlink()}
    assert links == set(DOORS)


@pytest.mark.parametrize("init", INITS, ids=within)
def test_every_room_says_what_it_is_for(init: Path) -> None:
    first, _, _ = (ast.get_docstring(ast.parse(init.read_text())) or "").partition("\n")
    assert re.search(r"\w.*[.:]$", first)


@pytest.mark.parametrize("module", MODULES, ids=within)
def test_every_file_says_in_its_first_line_what_it_is_for(module: Path) -> None:
    assert module.read_text().startswith('"""')


@pytest.mark.parametrize("folder", sorted({module.parent for module in MODULES}), ids=within)
def test_every_folder_of_modules_is_a_room(folder: Path) -> None:
    assert (folder / "__init__.py").is_file()


@pytest.mark.parametrize("module", MODULES, ids=within)
def test_no_file_is_too_long_to_read(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= MOST_LINES


# --- what is public ------------------------------------------------------------------------------


def test_the_public_names_exist_and_are_sorted() -> None:
    assert tallystick.__all__ == sorted(tallystick.__all__)
    missing = [name for name in tallystick.__all__ if not hasattr(tallystick, name)]
    assert missing == []


# --- scripts -------------------------------------------------------------------------------------


def header(script: Path) -> str:
    """The comment at the head of a script."""
    return "\n".join(re.findall(r"\A(?:--.*\n)+", script.read_text()))


def code(script: Path) -> str:
    """The script without its comments."""
    return re.sub(r"--.*", "", script.read_text())


@pytest.mark.parametrize("script", SCRIPTS, ids=within)
def test_a_script_begins_by_its_name_and_what_it_does(script: Path) -> None:
    first = script.read_text().splitlines()[0]
    name = "Shared by every script" if script.stem == "common" else f"{script.stem}: "
    assert first.startswith(f"-- {name}")


@pytest.mark.parametrize(
    "script", [script for script in SCRIPTS if script.stem != "common"], ids=within
)
def test_a_script_names_every_key_every_argument_and_what_it_returns(script: Path) -> None:
    head, body = header(script), code(script)
    assert "Returns " in head
    for array in ("KEYS", "ARGV"):
        used = {int(number) for number in re.findall(rf"{array}\[(\d+)\]", body)}
        named = {int(number) for number in re.findall(rf"{array}\[(\d+)", head)}
        assert used <= named
        assert named == set(range(1, max(named, default=0) + 1))


@pytest.mark.parametrize("script", SCRIPTS, ids=within)
def test_no_script_knows_a_state(script: Path) -> None:
    """Which states there are, and which follows which, is said once: in `states.py`."""
    words = set(re.findall(r"[a-z_]+", code(script)))
    assert words & set(State) == set()


def test_every_script_is_loaded_and_no_other() -> None:
    loaded = (PACKAGE / "jobs" / "wire.py").read_text()
    assert {script.stem for script in SCRIPTS} == {
        script.stem for script in SCRIPTS if f'"{script.stem}' in loaded
    }


# --- what must not be here -----------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES, ids=within)
def test_nothing_is_pickled(module: Path) -> None:
    """Whoever can write to Redis could otherwise run code in a worker."""
    tree = ast.parse(module.read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
    }
    assert (
        imported & {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
        == set()
    )
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert (called | names) & {"pickle", "Pickler", "Unpickler"} == set()
