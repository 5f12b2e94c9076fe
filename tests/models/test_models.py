"""What holds the models together; `make models` searches them all, and `.ci/run` calls it."""

import os
import re
import shutil

import pytest

from models import check
from models.check import HERE, Variant, check_all, found, variants
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "concepts" / "models.md"


def text(*patterns: str) -> str:
    return "\n".join(file.read_text() for one in patterns for file in sorted(HERE.glob(one)))


def test_each_variant_has_a_name_of_its_own_and_one_thing_to_come_out() -> None:
    every = variants()
    assert len({one.name for one in every}) == len(every)
    assert {one.model for one in every} == {"effect", "rollback"}
    broken = [one for one in every if one.wanted.startswith("breaks")]
    assert len(broken) >= 20, "a model in which hardly anything can break proves nothing"


def test_every_switch_is_one_of_the_models() -> None:
    """A misspelt switch would change nothing, and its variant be the right protocol."""
    known = set(re.findall(r"^#\s*(?:ifdef|ifndef|if|elif)\b(.*)$", text("*.pml"), re.M))
    names = set(re.findall(r"\b[A-Z][A-Z_]+\b", " ".join(known)))
    given = {flag.partition("=")[0] for one in variants() for flag in one.flags}
    counts = {"MAX_ZOMBIES", "WORKERS"}
    assert given - names - counts == set()
    assert all(re.search(rf"\b{name}\b", text("*.pml")) for name in counts)


def test_every_promise_is_broken_by_something() -> None:
    promised = set(re.findall(r"PROMISE\((\w+),", text("*.pml"))) - {"name", "never_reached"}
    broken = {one.expected for one in variants()}
    assert promised - broken <= set(), "nothing shows that the model can see these break"


@pytest.mark.parametrize(
    ("told", "what"),
    [
        (
            "pan:1: assertion violated ((effects<=1)||at_most_one_effect) (at depth 9)",
            "at_most_one_effect",
        ),
        ("pan:1: invalid end state (at depth 7)", "nothing_left_behind"),
        ("+ Partial Order\nerrors: 0\n", "holds"),
        ("+ Partial Order\nerrors: 0\nerror: max search depth too small\n", "not exhaustive"),
        ("errors: 0\n", "not exhaustive"),
        ("", "not exhaustive"),
    ],
)
def test_only_a_complete_search_holds(told: str, what: str) -> None:
    assert found(told) == what


@pytest.mark.models
def test_a_right_variant_holds_and_a_wrong_one_does_not() -> None:
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        unproved = f"the models are unsearched: {check.ADVICE}"
        pytest.fail(unproved) if os.environ.get("CI") else pytest.skip(unproved)
    wanted = {"blind": "holds", "run again what was found unfinished, blind": "at_most_one_effect"}
    some = [one for one in variants() if one.name in wanted]
    assert {done.variant.name: done.found for done in check_all(some, 2)} == wanted


def row(variant: Variant) -> str:
    return f"| {variant.name} | {variant.wanted.replace('_', ' ')} |"


def test_the_page_lists_every_variant() -> None:
    page = PAGE.read_text()
    assert [row(one) for one in variants() if row(one) not in page] == []
    assert f"{len(variants())} variants" in page
