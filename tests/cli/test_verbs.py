"""Each verb, in the shapes that outside tools rely on."""

import re

import pytest

from tests.cli.conftest import PARAMS, Shell
from tests.server import actions

pytestmark = pytest.mark.server

FIELDS = [
    "id",
    "key",
    "action",
    "version",
    "params",
    "state",
    "digest",
    "proposed_by",
    "approvals",
    "attempts",
    "fencing_token",
    "result",
    "verdict",
    "rollback",
    "created_at",
    "updated_at",
]
ISO_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_an_action_goes_from_proposal_to_commit(shell: Shell) -> None:
    id = shell.propose()["id"]
    assert shell.json("show", id)["state"] == "waiting_for_approval"
    assert shell.json("approve", id, "--by", "approver")["state"] == "approved"
    assert shell.run("worker", "--burst").returncode == 0
    found = shell.json("wait", id, "--timeout", "5")
    assert found["state"] == "committed"
    assert actions.effects("a") == 1
    assert [line["evidence"]["event"] for line in shell.json("history", id)] == [
        "proposed",
        "vote",
        "claimed",
        "intent",
        "replied",
        "verified",
    ]


def test_show_gives_every_promised_field(shell: Shell) -> None:
    found = shell.json("show", shell.propose()["id"])
    assert set(FIELDS) <= found.keys()
    assert found["params"] == {"item": "a", "value": "new"}
    assert found["digest"].startswith("sha256:")
    assert all(ISO_UTC.fullmatch(found[name]) for name in ("created_at", "updated_at"))


def test_params_come_from_a_file_or_from_standard_input(shell: Shell) -> None:
    (shell.folder / "params.json").write_text(PARAMS)
    from_file = shell.propose("k", f"@{shell.folder}/params.json")
    piped = shell.json(
        "propose",
        "item.readable",
        "--params",
        "-",
        "--key",
        "k",
        "--by",
        "x",
        stdin=PARAMS.encode(),
    )
    assert from_file["id"] == piped["id"]


def test_a_rejected_action_never_has_an_effect(shell: Shell) -> None:
    id = shell.propose()["id"]
    assert shell.json("reject", id, "--by", "a", "--reason", "no")["state"] == "rejected"
    assert "rejected" in shell.refused("approve", id, "--by", "b")
    shell.run("worker", "--burst")
    assert shell.json("wait", id, status=1)["state"] == "rejected"
    assert actions.effects("a") == 0


def test_a_cancelled_action_never_has_an_effect(shell: Shell) -> None:
    id = shell.propose()["id"]
    shell.json("approve", id, "--by", "approver")
    assert shell.json("cancel", id, "--by", "producer")["state"] == "cancelled"
    shell.run("worker", "--burst")
    assert actions.effects("a") == 0


def test_an_unknown_outcome_is_listed_resolved_and_acknowledged(shell: Shell) -> None:
    actions.arm("kill-horse-before")
    id = shell.propose()["id"]
    shell.json("approve", id, "--by", "approver")
    shell.run("worker", "--burst")
    assert [found["id"] for found in shell.json("list", "--state", "unknown")] == [id]
    assert [found["id"] for found in shell.json("list", "--attention")] == [id]
    shell.json("acknowledge", id, "--by", "oncall")
    assert shell.json("list", "--attention") == []
    proof = ["--evidence", "looked at the row: not there"]
    found = shell.json("resolve", id, "--to", "abandoned", "--by", "oncall", *proof)
    assert found["state"] == "abandoned"
    last = shell.json("history", id)[-1]
    assert last["who"] == "oncall"
    assert last["evidence"]["resolution"]["signature"]


def test_an_irreversible_action_asks_for_its_challenge(shell: Shell) -> None:
    id = shell.propose("loud", '{"words": "hear ye"}', "other.shout")["id"]
    assert "shout" in shell.refused("approve", id, "--by", "a", "--answer", "whisper")
    found = shell.json("approve", id, "--by", "a", "--answer", "shout")
    assert found["approvals"][0]["answer"] == "shout"


def test_the_known_types_are_listed_with_what_they_promise(shell: Shell) -> None:
    known = {kind["name"]: kind for kind in shell.json("actions")}
    assert known["item.keyed"]["protection"] == "keyed"
    assert known["other.shout"]["rollback"]["kind"] == "irreversible"
    assert known["item.readable"]["params"]["required"] == ["item", "value"]


def test_modules_may_be_named_before_or_after_the_verb(shell: Shell) -> None:
    shell.extra["TALLYSTICK_ACTIONS"] = ""
    after = shell.json("actions", "--actions", "tests.server.other_actions")
    before = shell.json("--actions", "tests.server.other_actions", "actions")
    assert [kind["name"] for kind in after] == ["other.shout"] == [kind["name"] for kind in before]


def test_people_see_words_a_digest_and_the_next_step(shell: Shell) -> None:
    id = shell.propose()["id"]
    shown = shell.run("show", id).stdout.decode()
    assert "waiting_for_approval" in shown
    assert f"tallystick approve {id} --by WHO" in shown
    assert "item.readable" in shell.run("list").stdout.decode()
    assert "proposed" in shell.run("history", id).stdout.decode()
    assert "item.keyed" in shell.run("actions").stdout.decode()


def test_text_that_hides_or_reorders_is_spelt_out(shell: Shell) -> None:
    id = shell.propose(params='{"item": "a", "value": "pay \\u202e gnp.exe [bold]x"}')["id"]
    shown = shell.run("show", id).stdout.decode()
    assert "\\u202e" in shown
    assert "[bold]x" in shown
