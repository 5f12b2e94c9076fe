"""Ed25519 keys: who can sign a decision, and whose signatures a worker believes.

The private key belongs to the approver's side and never enters Redis; workers need only the public
keys. Verification is PyNaCl's, which refuses keys of small order (RFC 8032 leaves that open).
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nacl.encoding import HexEncoder
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.core.errors import SettingsError

PRIVATE, TRUSTED = "approval.key", "trusted.json"


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key and its id (the first 16 hex digits of the public key)."""

    key: SigningKey

    @property
    def public(self) -> str:
        """The public key in hex."""
        return self.key.verify_key.encode(HexEncoder).decode()

    @property
    def key_id(self) -> str:
        """The name under which signatures of this key are kept."""
        return self.public[:16]

    def sign(self, payload: Mapping[str, Json]) -> str:
        """The signature, in hex, over the canonical bytes of `payload`."""
        return self.key.sign(canonical.dumps(payload)).signature.hex()

    @classmethod
    def generate(cls) -> "Signer":
        """A new random key."""
        return cls(SigningKey.generate())


@dataclass(frozen=True, slots=True)
class Keyring:
    """The public keys that are trusted to sign decisions, by key id."""

    trusted: Mapping[str, str]

    def defect(self, payload: Mapping[str, Json], key_id: str, signature: str) -> str:
        """What is wrong with this signature, in words; empty if it is good."""
        public = self.trusted.get(key_id)
        if public is None:
            return f"signed by the unknown key {key_id!r}"
        try:
            key = VerifyKey(public.encode(), HexEncoder)
            key.verify(canonical.dumps(payload), _bytes(signature))
        except (CryptoError, ValueError, TypeError):
            return "the signature does not match"
        return ""


def _bytes(signature: str) -> bytes:
    """The signature's bytes; its one spelling is lower-case hex. Raises ValueError."""
    data = bytes.fromhex(signature)
    if data.hex() != signature:
        raise ValueError("not in lower-case hex")
    return data


def load_signer(folder: Path) -> Signer | None:
    """The private key kept in `folder`, or None if there is none.

    Raises `SettingsError` if the file holds something else.
    """
    path = folder / PRIVATE
    try:
        return Signer(SigningKey(path.read_text().strip().encode(), HexEncoder))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, CryptoError, OSError) as error:
        raise _unusable(path, error) from None


def load_keyring(folder: Path) -> Keyring:
    """The public keys listed in `folder/trusted.json` (`{key_id: hex}`); empty if there is none.

    Raises `SettingsError` if the file holds something else.
    """
    path = folder / TRUSTED
    try:
        listed = json.loads(path.read_text())
        return Keyring({str(key_id): str(public) for key_id, public in listed.items()})
    except FileNotFoundError:
        return Keyring({})
    except (ValueError, AttributeError, OSError) as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: Exception) -> SettingsError:
    problem = f"{path} is not usable ({canonical.told(error)})"
    return SettingsError(variable="TALLYSTICK_KEY_DIR", problem=problem)


def create(folder: Path) -> Signer:
    """Make a key in `folder` (mode 0600), trust it there, and return it.

    Two processes may do this at once: the first one's key is the one that both get.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    signer = Signer.generate()
    _place(folder / PRIVATE, signer.key.encode(HexEncoder).decode())
    kept = load_signer(folder)
    assert kept is not None
    _place(folder / TRUSTED, json.dumps({kept.key_id: kept.public}, indent=2))
    return kept


def _place(path: Path, text: str) -> None:
    """Write a whole file (mode 0600) that did not exist, or leave the one that does."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
