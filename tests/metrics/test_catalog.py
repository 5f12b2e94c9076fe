"""The table of metric families, and the page that shows it."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tallystick.metrics.catalog import FAMILIES, Family, Given

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

# What is in this list is bounded by the code and its configuration; an id, a person, a target or
# the text of an error is not.
BOUNDED_LABELS = {
    "action_type",
    "to_state",
    "state",
    "stage",
    "reason",
    "result",
    "decision",
    "kind",
    "check",
    "version",
}

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def documented(family: Family) -> str:
    """The row of the page that belongs to a family."""
    labels = [
        f"`{name}`" if isinstance(values, Given) else f"`{name}` ({', '.join(values)})"
        for name, values in family.labels.items()
    ]
    return f"| `{family.name}` | {family.type} | {'; '.join(labels) or '-'} | {family.help} |"


def test_no_name_stands_twice_in_the_catalog() -> None:
    names = Counter(name for family in FAMILIES for name in family.sample_names())
    assert [name for name, times in names.items() if times > 1] == []


@each_family
def test_every_name_has_the_prefix_and_is_in_snake_case(family: Family) -> None:
    assert re.fullmatch(r"tallystick(_[a-z]+)+", family.name)


@each_family
def test_a_name_ends_in_total_if_and_only_if_it_counts(family: Family) -> None:
    assert family.name.endswith("_total") == (family.type == "counter")


@each_family
def test_labels_hold_nothing_that_grows_with_the_number_of_actions(family: Family) -> None:
    assert family.labels.keys() <= BOUNDED_LABELS


@each_family
def test_help_is_a_sentence(family: Family) -> None:
    assert re.fullmatch(r"[A-Z1][^\n|]+\.", family.help)


def test_the_reference_page_shows_every_family_as_it_is_and_no_other() -> None:
    rows = re.findall(r"^\| `tallystick_.*$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert rows == [documented(family) for family in FAMILIES]


def test_the_reference_page_mentions_no_metric_that_does_not_exist() -> None:
    mentioned = set(re.findall(r"\btallystick_[a-z_]+\b", PAGE.read_text("utf-8")))
    exported = {name for family in FAMILIES for name in (family.name, *family.sample_names())}
    assert mentioned <= exported
