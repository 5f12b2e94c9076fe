"""Approval keys: made once, kept private, trusted by name."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tallystick.approvals import Keyring, Signer, create, load_keyring, load_signer
from tallystick.core.canonical import Json

PAYLOAD: dict[str, Json] = {"purpose": "test", "n": 1}


def trusting(*signers: Signer) -> Keyring:
    return Keyring({signer.key_id: signer.public for signer in signers})


# --- signatures ----------------------------------------------------------------------------------


def test_a_signature_is_good_for_its_payload_and_its_key_only() -> None:
    one, two = Signer.generate(), Signer.generate()
    keys, signature = trusting(one, two), one.sign(PAYLOAD)
    assert keys.defect(PAYLOAD, one.key_id, signature) == ""
    assert "does not match" in keys.defect(PAYLOAD | {"n": 2}, one.key_id, signature)
    assert "does not match" in keys.defect(PAYLOAD, two.key_id, signature)


def test_a_signature_does_not_depend_on_the_order_of_the_payload() -> None:
    signer = Signer.generate()
    assert signer.sign({"a": 1, "b": 2}) == signer.sign({"b": 2, "a": 1})


def test_a_key_that_is_not_trusted_is_named() -> None:
    signer = Signer.generate()
    assert signer.key_id in Keyring({}).defect(PAYLOAD, signer.key_id, signer.sign(PAYLOAD))


@pytest.mark.parametrize("signature", ["", "zz", "00", "0" * 128, "é" * 64, " " * 128])
def test_what_is_no_signature_does_not_match(signature: str) -> None:
    signer = Signer.generate()
    assert trusting(signer).defect(PAYLOAD, signer.key_id, signature) != ""


@pytest.mark.parametrize(
    "public",
    [
        "01" + "00" * 31,  # the identity: under it, a signature over anything can be made up
        "00" * 32,
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    ],
)
def test_a_key_of_small_order_proves_nothing(public: str) -> None:
    keys = Keyring({public[:16]: public})
    for point in (public, "01" + "00" * 31):
        assert keys.defect(PAYLOAD, public[:16], point + "00" * 32) != ""


@pytest.mark.parametrize("public", ["", "zz" * 32, "00" * 31, "é"])
def test_a_trusted_key_that_is_none_proves_nothing(public: str) -> None:
    signer = Signer.generate()
    assert Keyring({signer.key_id: public}).defect(PAYLOAD, signer.key_id, signer.sign(PAYLOAD))


def test_a_key_id_begins_its_public_key() -> None:
    signer = Signer.generate()
    assert signer.public.startswith(signer.key_id)
    assert (len(signer.public), len(signer.key_id)) == (64, 16)


def test_a_key_filed_under_another_keys_id_does_not_verify_for_it() -> None:
    one, two = Signer.generate(), Signer.generate()
    keys = Keyring({one.key_id: two.public})
    assert keys.defect(PAYLOAD, one.key_id, one.sign(PAYLOAD)) != ""


# --- files ---------------------------------------------------------------------------------------


def test_a_folder_without_keys_has_none(tmp_path: Path) -> None:
    assert load_signer(tmp_path / "none") is None
    assert load_keyring(tmp_path / "none").trusted == {}


def test_a_made_key_is_found_again_and_trusted(tmp_path: Path) -> None:
    made = create(tmp_path / "keys")
    found = load_signer(tmp_path / "keys")
    assert found
    assert found.public == made.public
    assert load_keyring(tmp_path / "keys").defect(PAYLOAD, made.key_id, found.sign(PAYLOAD)) == ""


def test_a_made_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    create(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "approval.key").stat().st_mode) == 0o600


def test_making_a_key_twice_keeps_the_first(tmp_path: Path) -> None:
    assert create(tmp_path).public == create(tmp_path).public


def test_a_list_of_trusted_keys_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "trusted.json").write_text("{}")
    create(tmp_path)
    assert load_keyring(tmp_path).trusted == {}


def test_no_draft_is_left_behind(tmp_path: Path) -> None:
    create(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"approval.key", "trusted.json"}


def test_two_who_make_a_key_at_once_get_the_same_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: create(tmp_path).public, range(8)))
    assert len(set(made)) == 1
    assert load_keyring(tmp_path).trusted == {made[0][:16]: made[0]}


def test_several_keys_may_be_trusted(tmp_path: Path) -> None:
    one, two = Signer.generate(), Signer.generate()
    listed = {signer.key_id: signer.public for signer in (one, two)}
    (tmp_path / "trusted.json").write_text(json.dumps(listed))
    keys = load_keyring(tmp_path)
    for signer in (one, two):
        assert keys.defect(PAYLOAD, signer.key_id, signer.sign(PAYLOAD)) == ""
