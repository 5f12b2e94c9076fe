"""Bad input on the command line: one line that names the field and the remedy, exit status 1."""

import socket

import pytest

from tests.cli.conftest import PARAMS, Shell

pytestmark = pytest.mark.server


def propose(*, params: str = PARAMS, key: str = "k", name: str = "item.readable") -> list[str]:
    return ["propose", name, "--params", params, "--key", key, "--by", "producer"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(propose(name="no.such"), "No action type is named 'no.such'", id="type"),
        pytest.param(propose(params='{"item": "a"}'), "params.value", id="missing field"),
        pytest.param(
            propose(params='{"item": "a", "value": "b", "more": 1}'),
            "params.more",
            id="extra field",
        ),
        pytest.param(propose(params='{"item": 1, "value": "b"}'), "params.item", id="wrong kind"),
        pytest.param(propose(params="[]"), "not a JSON object", id="not an object"),
        pytest.param(propose(params="{"), "not valid JSON", id="syntax"),
        pytest.param(propose(params='{"item": "a", "item": "b"}'), "params.item", id="double key"),
        pytest.param(propose(params='{"item": NaN, "value": "b"}'), "NaN", id="nan"),
        pytest.param(propose(params='{"item": 9007199254740993}'), "2^53", id="integer"),
        pytest.param(propose(params='{"item": "\\ud800"}'), "lone surrogate", id="surrogate"),
        pytest.param(propose(params='{"item": "\\u0007"}'), "U+0007", id="control character"),
        pytest.param(propose(params="@/no/such/file"), "/no/such/file", id="file"),
        pytest.param(propose(key=""), "key: it is empty", id="empty key"),
        pytest.param(propose(key="k" * 257), "the limit is 256", id="long key"),
        pytest.param(propose(key="a\x1bb"), "U+001B", id="control character in key"),
        pytest.param(["show", "0123456789abcdef"], "no action '0123456789abcdef'", id="unknown id"),
        pytest.param(["list", "--state", "happy"], "'happy' is no state", id="unknown state"),
    ],
)
def test_bad_input_is_refused_by_name_and_stores_nothing(
    shell: Shell, words: list[str], said: str
) -> None:
    assert said in shell.refused(*words)
    assert shell.json("list") == []


def test_params_over_64_kib_are_refused(shell: Shell) -> None:
    large = b'{"item": "a", "value": "%s"}' % (b"x" * 70_000)
    assert "limit is 65536" in shell.refused(*propose(params="-"), stdin=large)
    assert "far over 64 KiB" in shell.refused(*propose(params="-"), stdin=large * 20)
    assert shell.json("list") == []


def test_the_same_key_with_other_content_is_refused_with_both_digests(shell: Shell) -> None:
    first = shell.propose()
    assert shell.propose()["id"] == first["id"]
    said = shell.refused(*propose(params='{"item": "a", "value": "other"}'))
    assert first["id"] in said
    assert said.count("sha256:") == 2
    assert len(shell.json("list")) == 1


def test_who_may_not_approve_is_told_why(shell: Shell) -> None:
    id = shell.propose()["id"]
    assert "separation of duties" in shell.refused("approve", id, "--by", "Producer")
    assert shell.json("show", id)["state"] == "waiting_for_approval"


def test_an_illegal_move_says_what_is_legal(shell: Shell) -> None:
    id = shell.propose()["id"]
    words = ["--to", "committed", "--by", "x", "--evidence", "y"]
    assert "waiting_for_approval" in shell.refused("resolve", id, *words)
    shell.json("cancel", id, "--by", "x")
    assert "cancelled" in shell.refused("approve", id, "--by", "y")


def test_a_module_that_cannot_be_imported_is_named(shell: Shell) -> None:
    said = shell.refused("--actions", "no.such.module", *propose())
    assert "no.such.module" in said


def test_a_server_that_is_down_is_named_without_its_password(shell: Shell) -> None:
    shell.extra["TALLYSTICK_REDIS_URL"] = "redis://:secret@127.0.0.1:1/0"
    said = shell.refused("list")
    assert "redis://127.0.0.1:1/0" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TALLYSTICK_LEASE_SECONDS", "soon", "TALLYSTICK_LEASE_SECONDS"),
        ("TALLYSTICK_NAMESPACE", "a b", "TALLYSTICK_NAMESPACE"),
        ("TALLYSTICK_EFFECT_DEADLINE_SECONDS", "60", "TALLYSTICK_EFFECT_DEADLINE_SECONDS"),
    ],
)
def test_a_setting_that_is_not_usable_is_named(
    shell: Shell, name: str, value: str, said: str
) -> None:
    shell.extra[name] = value
    assert said in shell.refused("list")


def test_waiting_too_long_says_where_the_action_is(shell: Shell) -> None:
    id = shell.propose()["id"]
    assert "still waiting_for_approval" in shell.refused("wait", id, "--timeout", "0")


@pytest.mark.parametrize("words", [["propose"], ["approve"], ["no-such-verb"], ["list", "--odd"]])
def test_wrong_usage_has_its_own_exit_status(shell: Shell, words: list[str]) -> None:
    assert "tallystick" in shell.refused(*words, status=2)


def test_a_worker_without_any_type_is_refused(shell: Shell) -> None:
    shell.extra["TALLYSTICK_ACTIONS"] = ""
    assert "could run nothing" in shell.refused("worker", "--burst")


def test_a_burst_on_a_server_that_is_down_ends_and_says_so(shell: Shell) -> None:
    shell.extra["TALLYSTICK_REDIS_URL"] = "redis://127.0.0.1:1/0"
    assert "does not answer" in shell.refused("worker", "--burst")


def test_a_port_that_is_taken_is_named(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port} cannot be listened on" in shell.refused(
            "exporter", "--port", str(port)
        )


def test_a_stop_of_a_type_that_was_never_seen_is_pointed_out(shell: Shell) -> None:
    found = shell.run("stop", "--action", "no.such", "--by", "x", "--reason", "drill")
    assert found.returncode == 0
    assert "no action of the type no.such" in found.stderr.decode()
    assert (
        "ended the stop of no.such"
        in shell.run("start", "--action", "no.such", "--by", "x").stdout.decode()
    )
