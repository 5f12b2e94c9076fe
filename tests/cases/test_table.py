"""The table in the docs, the tests and the list of cases say the same."""

import ast
import re
from pathlib import Path

from tests.cases import CASES
from tests.docs.pages import DOCS, code_spans, rows

PAGE = DOCS / "reference" / "cases.md"
HERE = Path(__file__).parent


def cased() -> dict[str, tuple[int, str]]:
    """The case and the file of each test, by its name."""
    found = {}
    for file in sorted(HERE.glob("test_*.py")):
        if file == Path(__file__):
            continue
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                case = re.match(r"Case (\d+): \S", ast.get_docstring(node) or "")
                assert case, f"{node.name} does not begin with the number of its case"
                found[node.name] = (int(case[1]), file.name)
    return found


def table() -> dict[int, list[str]]:
    """The rows of the page by case, each as its cells."""
    found = rows(PAGE.read_text())
    cases = {int(row[0]): row for row in found}
    assert len(cases) == len(found), "a case is listed twice"
    return cases


def test_the_table_the_tests_and_the_list_hold_the_same_cases() -> None:
    assert sorted(table()) == sorted(CASES)
    assert {case for case, _ in cased().values()} == set(CASES)
    assert len(set(CASES)) == len(CASES)


def test_each_row_names_every_test_of_its_case_and_the_file_that_holds_it() -> None:
    for case, row in table().items():
        links = dict(re.findall(r"\[`(\w+)`\]\(\.\./\.\./tests/cases/(\w+\.py)\)", row[-1]))
        assert links == {name: file for name, (number, file) in cased().items() if number == case}
        assert sorted(code_spans(row[-1])) == sorted(links)


def test_each_row_is_whole_and_links_to_where_the_case_was_reported() -> None:
    kinds = set(re.findall(r"\b[A-Z]{2,}\b", PAGE.read_text().partition("\n## ")[0]))
    for case, row in table().items():
        assert len(row) == 7
        assert all(cell.strip() for cell in row), case
        assert row[2] in kinds
        sources = re.findall(r"\[([\w.-]+/[\w.-]+)#(\d+)\]\((\S+)\)", row[1])
        assert sources, case
        for repository, number, address in sources:
            assert address == f"https://github.com/{repository}/issues/{number}"
