"""Takes secrets out of whatever is about to be logged: by the name of a field, and by its look.

It is the second line of defence. The first is that parameters, results and the words of action
code are not handed to a logger at all.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tallystick.core.canonical import told

REDACTED = "[redacted]"

_SECRET = re.compile(
    r"api[_-]?key|authorization|cookie|credential|passphrase|passw(?:or)?d|private[_-]?key|pwd"
    r"|secret|token",
    re.IGNORECASE,
)
"""What the name of a field with a secret contains."""

_MOST_CHARACTERS = 2000

_HARMLESS = frozenset({"fencing_token"})
"""Fields that are named like a secret and are none: a fencing token is a small number."""

_WORD = re.compile(r"\S+")

_HEADER = re.compile(r"""(authorization\\*["']?\s*[:=]\s*)[^\r\n]+""", re.IGNORECASE)
"""To the end of the line: the credentials follow a scheme and a space."""

_SCHEME = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)

_NAME = rf"[\w-]{{0,40}}(?:{_SECRET.pattern})[\w-]{{0,40}}"
_PAIR = re.compile(
    rf"""(?<!fencing )\b(?!fencing_token)({_NAME}\\*["']?\s*[:=]\s*)(?!\[redacted\])"""
    r"""(?:\\*"(?:\\.|[^"\\])*"?|\\*'(?:\\.|[^'\\])*'?|[^\s&,;"'})\]]+)""",
    re.IGNORECASE,
)
"""name=value, name: value, "name": "value", also as a parameter of a URL."""

_SUSPICIOUS = re.compile(rf"://|-----BEGIN|\bbearer\b|\bbasic\b|{_SECRET.pattern}", re.IGNORECASE)
"""What any of these needs, so that most texts are looked at once."""

_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END[^-]*-----|\Z)", re.DOTALL)


def redacted(value: Any, name: str = "") -> Any:
    """The value without secrets: all of it where the name of its field says that it is one."""
    if _is_secret(name):
        return REDACTED
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {str(key): redacted(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return without_secrets(told(value, limit=_MOST_CHARACTERS))


@lru_cache(maxsize=512)
def _is_secret(name: str) -> bool:
    return name not in _HARMLESS and _SECRET.search(name) is not None


def without_secrets(text: str) -> str:
    """The text without what looks like credentials."""
    if _SUSPICIOUS.search(text) is None:
        return text
    if "://" in text:
        text = _WORD.sub(_without_userinfo, text)
    text = _KEY.sub(REDACTED, text)
    text = _HEADER.sub(rf"\1{REDACTED}", text)
    text = _SCHEME.sub(rf"\1 {REDACTED}", text)
    return _PAIR.sub(rf"\1{REDACTED}", text)


def _without_userinfo(word: re.Match[str]) -> str:
    """A URL without user and password, up to its last @: a password may hold one, or a slash."""
    scheme, mark, rest = word[0].partition("://")
    login, at, host = rest.rpartition("@")
    credentials = at and (":" in login or "/" not in login)
    return scheme + mark + (host if credentials else rest)
