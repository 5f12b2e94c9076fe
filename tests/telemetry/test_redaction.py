"""What looks like a secret, or is named like one, does not come through."""

from typing import Any

import pytest

from tallystick.telemetry.redaction import REDACTED, redacted, without_secrets

SECRET = "hunter2-Planted"


@pytest.mark.parametrize(
    "text",
    [
        f"redis://:{SECRET}@db:6379/0",
        f"redis://app:{SECRET}@db",
        f"rediss://app:a@{SECRET}@db/0?x=1",
        f"redis://app:{SECRET}/with?marks#@db",
        f"cannot reach https://user:{SECRET}@api.example.com/v1, giving up",
        f"unix://app:{SECRET}@/run/redis.sock",
        f"redis://db?password={SECRET}&db=0",
        f"https://api.example.com/v1?access_token={SECRET}&page=2",
        f"password={SECRET}",
        f"password: {SECRET}",
        f"PASSWORD = '{SECRET} and more'",
        f'{{"password": "{SECRET}", "user": "a"}}',
        f'{{"client_secret":"a \\" b {SECRET}"}}',
        f'{{\\"token\\": \\"{SECRET}\\"}}',
        f"{{'api_key': '{SECRET}'}}",
        f"X-Api-Key: {SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"Authorization: Basic a b c {SECRET}",
        f"{{'authorization': 'Digest username=\"a\", response=\"{SECRET}\"'}}",
        f"sent with bearer {SECRET}.{SECRET}",
        f"set-cookie: session={SECRET}; path=/",
        f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
    ],
)
def test_a_secret_in_a_text_is_taken_out(text: str) -> None:
    assert SECRET not in without_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "action 420d76024f206e24: approved -> running",
        "redis://db:6379/0 does not answer (Error 111 connecting to db:6379. Connection refused.)",
        "unix:///run/redis.sock",
        "https://api.example.com:8443/v1/accounts?page=2",
        "mail to ops@example.com at 12:00",
        "fencing token: 7",
        "fencing_token=7",
        "a token was lost",
        "the secret of success is patience",
        "the basic idea",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_the_rest_of_a_text_stays_readable() -> None:
    shown = without_secrets(
        f"https://app:{SECRET}@db/x?token={SECRET}&page=2 failed: password=a, b"
    )
    assert shown == f"https://db/x?token={REDACTED}&page=2 failed: password={REDACTED}, b"


def test_it_is_done_once_however_often_it_is_done() -> None:
    once = without_secrets(f"Authorization: Bearer {SECRET}\npassword={SECRET}")
    assert without_secrets(once) == once
    assert once.count(REDACTED) == 2


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "DB_PASSWORD",
        "passwd",
        "token",
        "access_token",
        "Authorization",
        "api-key",
        "apikey",
        "client_secret",
        "Cookie",
        "credentials",
        "private_key",
        "passphrase",
    ],
)
@pytest.mark.parametrize(
    "value",
    [SECRET, 4711, [SECRET], {"deep": SECRET}, SECRET.encode()],
    ids=["text", "number", "list", "object", "bytes"],
)
def test_a_field_that_is_named_like_a_secret_is_redacted_whole(name: str, value: Any) -> None:
    assert redacted(value, name) == REDACTED
    assert redacted({"a": [{name: value}]}) == {"a": [{name: REDACTED}]}


def test_a_fencing_token_is_a_number_and_no_secret() -> None:
    assert redacted({"fencing_token": 7}) == {"fencing_token": 7}


class Stubborn:
    """Something that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError(SECRET)


def test_anything_can_be_logged_and_only_as_text() -> None:
    given = {"n": 1, "f": 1.5, "b": True, "none": None, "set": {1}, "at": object}
    shown = redacted({**given, "odd": Stubborn(), 3: f"password={SECRET}"})
    assert {name: shown[name] for name in ("n", "f", "b", "none")} == {
        name: given[name] for name in ("n", "f", "b", "none")
    }
    assert shown["set"] == [1]
    assert shown["3"] == f"password={REDACTED}"
    assert shown["odd"] == "Stubborn"
    assert isinstance(shown["at"], str)


@pytest.mark.parametrize(
    "text",
    [
        "a:" * 20_000,
        "://" * 20_000,
        "://a:" * 9_000,
        "token" * 20_000,
        "x=" * 40_000,
        "\\" * 40_000,
    ],
    ids=["colons", "schemes", "urls", "names", "pairs", "backslashes"],
)
@pytest.mark.timeout(30)  # a pattern that backtracks would take hours
def test_a_secret_is_found_behind_a_text_that_is_odd_and_long(text: str) -> None:
    assert SECRET not in without_secrets(f"{text} password={SECRET}")
