"""What people and tools read: the table, the verdict, the JSON, and what was waived."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.core.errors import SettingsError
from tallystick.jobs.checks import CHECKS
from tallystick.jobs.checks.facts import Denied, Facts
from tallystick.jobs.checks.finding import WORST_FIRST, Severity
from tallystick.jobs.doctor import WAIVABLE, examine, waived, waivers_of
from tests.doctor.conftest import Clinic, Launch
from tests.doctor.healthy import HEALTHY, but, option
from tests.doctor.test_guard import Given

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "doctor.md"

NOT_DURABLE = {"appendonly": "no", "appendfsync": "everysec"}


# --- waivers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facts", [option(appendfsync="no"), but(config=Denied("CONFIG GET", "NOPERM"))]
)
def test_a_waiver_turns_a_refusal_or_an_unknown_into_a_warning(facts: Facts) -> None:
    before = {finding.name: finding for finding in examine(facts)}
    after = {finding.name: finding for finding in waived(examine(facts), ["appendfsync"])}
    mild = {"severity": Severity.WARN, "waived": True}
    assert after["appendfsync"] == before["appendfsync"].model_copy(update=mild)
    assert {name: after[name] for name in after if name != "appendfsync"} == {
        name: before[name] for name in before if name != "appendfsync"
    }


def test_a_waiver_that_is_not_needed_changes_nothing() -> None:
    assert waived(examine(HEALTHY), ["appendfsync"]) == examine(HEALTHY)


def test_every_check_but_whether_the_server_answers_can_be_waived() -> None:
    assert {check.name for check in CHECKS} - WAIVABLE == {"server-answers"}


def test_a_waiver_that_names_no_check_is_an_error_that_names_it() -> None:
    with pytest.raises(SettingsError, match="'appendonyl'"):
        waivers_of(Given.load(allow_unsafe=("appendonly", "appendonyl")))


@pytest.mark.server
def test_waived_by_the_environment_it_tolerates_loudly(clinic: Clinic, launch: Launch) -> None:
    server = launch(**NOT_DURABLE)
    names = "appendonly, appendfsync"
    told = clinic.doctor(server.url, allow_unsafe=names)
    assert told.status == 0
    assert told.findings["appendonly"]["waived"]
    status, shown, _ = clinic.run(server.url, allow_unsafe=names)
    assert status == 0
    assert shown.count("WAIVED") == 2
    assert "tolerated" in shown
    assert "2 waived: NOT SAFE" in shown


@pytest.mark.server
def test_a_misspelt_waiver_is_one_line_and_status_one(clinic: Clinic, launch: Launch) -> None:
    status, out, err = clinic.run(launch().url, allow_unsafe="appendfsnyc")
    assert (status, out) == (1, "")
    assert "TALLYSTICK_ALLOW_UNSAFE" in err
    assert "'appendfsnyc'" in err


# --- what it prints ------------------------------------------------------------------------------


@pytest.mark.server
def test_people_see_the_worst_first_with_why_and_remedy_and_one_verdict(
    clinic: Clinic, launch: Launch
) -> None:
    status, shown, err = clinic.run(launch(**NOT_DURABLE).url)
    assert (status, err) == (1, "")
    lines = shown.splitlines()
    words = [found[0] for line in lines if (found := re.match(r"(refuse|unknown|warn|ok)\b", line))]
    assert words == sorted(words, key=lambda word: WORST_FIRST.index(Severity(word)))
    assert words[:3] == ["refuse", "refuse", "warn"]
    flowing = " ".join(shown.split())
    assert "Without the append-only file a restart loses" in flowing
    assert "remedy: redis-cli CONFIG SET appendonly yes" in flowing
    assert lines[-1].startswith(f"refused: 2 refuse, {words.count('warn')} warn, ")


@pytest.mark.server
def test_a_sound_server_is_called_so(clinic: Clinic, launch: Launch) -> None:
    status, shown, _ = clinic.run(launch().url)
    assert status == 0
    assert shown.splitlines()[-1].startswith("sound: ")
    assert "refuse" not in shown


@pytest.mark.server
def test_tools_read_every_field(clinic: Clinic, launch: Launch) -> None:
    server = launch(**NOT_DURABLE)
    _, out, _ = clinic.run(server.url.replace("unix://", "unix://:not-needed@"), "--json")
    report = json.loads(out)
    assert set(report) == {"server", "refuses", "findings"}
    assert "not-needed" not in out


@pytest.mark.server
def test_the_command_is_there_in_a_process_of_its_own(clinic: Clinic, launch: Launch) -> None:
    code = "import sys; from tallystick.cli import doctoring, main; sys.exit(main())"
    found = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--json"],
        env=clinic.env(launch(**NOT_DURABLE).url),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 1
    assert json.loads(found.stdout)["refuses"] is True


# --- the page ------------------------------------------------------------------------------------


def documented() -> list[tuple[str, str, str]]:
    """The rows of the page: name, whether workers ask it, and why it matters."""
    row = re.compile(r"^\| `([a-z0-9-]+)` \| (yes)? *\| .+ \| (.+) \|$", re.MULTILINE)
    return [(name, workers, why) for name, workers, why in row.findall(PAGE.read_text())]


def test_every_check_is_documented_and_every_documented_check_exists() -> None:
    assert documented() == [
        (check.name, "yes" if check.essential else "", check.why.rstrip(".")) for check in CHECKS
    ]
