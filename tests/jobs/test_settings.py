"""The settings, read once from the environment; and the URLs by which the store is reached."""

from pathlib import Path
from typing import Any

import pytest
from redis.sentinel import SentinelConnectionPool

from tallystick.core.errors import SettingsError, StoreUnavailable
from tallystick.jobs.connection import connect, safe_url
from tallystick.jobs.settings import MARGIN_SECONDS, Settings
from tallystick.jobs.store import Store

SECRET = "s3cret"


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"TALLYSTICK_{name.upper()}", raising=False)


# --- the environment -----------------------------------------------------------------------------


def test_nothing_has_to_be_set() -> None:
    settings = Settings.load()
    assert settings.redis_url is None
    assert settings.actions == ()
    assert settings.namespace == "tallystick"
    assert settings.effect_deadline + MARGIN_SECONDS <= settings.lease_seconds
    assert settings.keys_path == settings.data_dir / "keys"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("redis_url", "redis://db:6380/2", "redis://db:6380/2"),
        ("redis_password_file", "/run/secrets/redis", Path("/run/secrets/redis")),
        ("actions", "bank.actions", ("bank.actions",)),
        ("actions", " bank.actions , mail.actions,", ("bank.actions", "mail.actions")),
        ("actions", "", ()),
        ("namespace", "team-a_1.x", "team-a_1.x"),
        ("lease_seconds", "30.5", 30.5),
        ("effect_deadline_seconds", "4", 4.0),
        ("verify_deadline_seconds", "0", 0.0),
        ("data_dir", "/var/lib/tally", Path("/var/lib/tally")),
        ("key_dir", "/etc/tally", Path("/etc/tally")),
    ],
)
def test_each_setting_is_read_from_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    monkeypatch.setenv(f"TALLYSTICK_{name.upper()}", text)
    assert getattr(Settings.load(), name) == value


def test_what_is_given_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYSTICK_NAMESPACE", "from-outside")
    assert Settings.load(namespace="given").namespace == "given"


def test_settings_do_not_change_once_they_are_read() -> None:
    settings = Settings.load()
    with pytest.raises(ValueError, match="frozen"):
        setattr(settings, "namespace", "other")  # noqa: B010 - mypy knows that it is read-only
    assert settings.namespace == "tallystick"


def test_a_folder_of_keys_of_ones_own_is_used_as_it_is() -> None:
    assert Settings.load(key_dir=Path("/etc/tally")).keys_path == Path("/etc/tally")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("namespace", ""),
        ("namespace", "a b"),
        ("namespace", "a\n"),
        ("namespace", "{a}"),
        ("namespace", "a:b"),
        ("namespace", "ä"),
        ("namespace", "a" * 65),
        ("lease_seconds", "fifteen"),
        ("lease_seconds", ""),
        ("lease_seconds", "0"),
        ("lease_seconds", "-15"),
        ("lease_seconds", "3601"),
        ("lease_seconds", "inf"),
        ("lease_seconds", "nan"),
        ("effect_deadline_seconds", "0"),
        ("effect_deadline_seconds", "-1"),
        ("effect_deadline_seconds", "inf"),
        ("effect_deadline_seconds", "nan"),
        ("verify_deadline_seconds", "-0.1"),
        ("verify_deadline_seconds", "3601"),
        ("verify_deadline_seconds", "nan"),
    ],
    ids=ascii,
)
def test_a_value_that_is_not_usable_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(f"TALLYSTICK_{name.upper()}", text)
    with pytest.raises(SettingsError) as raised:
        Settings.load()
    assert raised.value.facts["variable"] == f"TALLYSTICK_{name.upper()}"
    assert f"TALLYSTICK_{name.upper()}" in str(raised.value)
    assert "Correct it in the environment" in str(raised.value)


# --- a deadline fits into the lease --------------------------------------------------------------


@pytest.mark.parametrize("lease", [1.5, 2, 15, 3600])
def test_the_effect_has_two_thirds_of_the_lease_unless_told_otherwise(lease: float) -> None:
    settings = Settings.load(lease_seconds=lease)
    assert settings.effect_deadline == pytest.approx(lease * 2 / 3)


@pytest.mark.parametrize(("lease", "effect"), [(10, 9.5), (1, 0.5), (3600, 3599.5)])
def test_a_deadline_may_use_the_lease_up_to_the_margin(lease: float, effect: float) -> None:
    settings = Settings.load(lease_seconds=lease, effect_deadline_seconds=effect)
    assert settings.effect_deadline == effect


@pytest.mark.parametrize(("lease", "effect"), [(10, 9.51), (10, 10), (10, 60), (1, 0.51)])
def test_a_deadline_that_outlives_the_lease_is_refused(lease: float, effect: float) -> None:
    with pytest.raises(SettingsError, match="must fit into lease_seconds") as raised:
        Settings.load(lease_seconds=lease, effect_deadline_seconds=effect)
    assert raised.value.facts["variable"] == "TALLYSTICK_EFFECT_DEADLINE_SECONDS"
    assert f"{effect:g}" in str(raised.value)
    assert f"({lease:g})" in str(raised.value)


def test_the_shortest_lease_leaves_half_a_second_for_an_effect() -> None:
    assert Settings.load(lease_seconds=1).effect_deadline == 0.5


def test_a_lease_too_short_for_any_effect_is_refused_by_its_own_variable() -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.load(lease_seconds=0.9)
    assert raised.value.facts["variable"] == "TALLYSTICK_LEASE_SECONDS"


# --- the password in a file ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("redis://db:6380/2", "redis://:s3cret@db:6380/2"),
        ("redis://app@db", "redis://app:s3cret@db"),
        ("rediss://app@db/0?ssl_ca_certs=/ca.pem", "rediss://app:s3cret@db/0?ssl_ca_certs=/ca.pem"),
        ("unix:///run/redis.sock", "unix://:s3cret@/run/redis.sock"),
        ("unix://app@/run/redis.sock?db=3", "unix://app:s3cret@/run/redis.sock?db=3"),
        ("redis+sentinel://a:1,b:2/tally", "redis+sentinel://:s3cret@a:1,b:2/tally"),
    ],
)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_password_of_a_file_is_put_into_the_url(
    tmp_path: Path, url: str, whole: str, end: str
) -> None:
    (tmp_path / "password").write_bytes(f"{SECRET}{end}".encode())
    settings = Settings.load(redis_url=url, redis_password_file=tmp_path / "password")
    assert settings.store_url == whole
    assert settings.redis_url == url


def test_every_character_of_a_password_survives_the_url(tmp_path: Path) -> None:
    password = " p@:/?#[]%20+é"
    (tmp_path / "password").write_text(password)
    for url in ("redis://app@db", "redis+sentinel://app@db/tally", "unix://app@/run/redis.sock"):
        settings = Settings.load(redis_url=url, redis_password_file=tmp_path / "password")
        kwargs = pool_of(str(settings.store_url)).connection_kwargs
        assert (kwargs["username"], kwargs["password"]) == ("app", password)


def test_a_file_that_changes_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("old")
    settings = Settings.load(redis_url="redis://db", redis_password_file=tmp_path / "password")
    assert settings.store_url == "redis://:old@db"
    (tmp_path / "password").write_text("new")
    assert settings.store_url == "redis://:new@db"


@pytest.mark.parametrize(
    ("url", "content", "problem"),
    [
        ("redis://:other@db", b"s3cret", "TALLYSTICK_REDIS_URL holds a password already"),
        ("redis://db?password=other", b"s3cret", "TALLYSTICK_REDIS_URL holds a password already"),
        (None, b"s3cret", "there is no TALLYSTICK_REDIS_URL"),
        ("redis://db", None, "cannot be read (No such file or directory)"),
        ("redis://db", b"", "must hold one line"),
        ("redis://db", b"\n", "must hold one line"),
        ("redis://db", b"one\ntwo", "must hold one line"),
        ("redis://db", b"s3cret\xff", "cannot be read (it is not UTF-8)"),
    ],
)
def test_a_password_file_that_cannot_be_used_is_told_without_its_content(
    tmp_path: Path, url: str | None, content: bytes | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    settings = Settings.load(redis_url=url, redis_password_file=tmp_path / "password")
    with pytest.raises(SettingsError) as raised:
        _ = settings.store_url
    assert raised.value.facts["variable"] == "TALLYSTICK_REDIS_PASSWORD_FILE"
    assert problem in str(raised.value)
    assert SECRET not in str(raised.value)


# --- where the store is --------------------------------------------------------------------------


def pool_of(url: str) -> Any:
    return connect(url, timeout=1, retries=False, decode=True).connection_pool


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://db", {"host": "db"}),
        ("redis://db:6380/2", {"host": "db", "port": 6380, "db": 2}),
        ("redis://:s3cret@db/0", {"host": "db", "password": SECRET}),
        ("redis://app:s3cret@db", {"username": "app", "password": SECRET}),
        ("rediss://db", {"host": "db"}),
        ("unix:///run/redis.sock", {"path": "/run/redis.sock"}),
        ("unix:///run/redis.sock?db=3", {"path": "/run/redis.sock", "db": 3}),
        ("unix:///run/redis.sock?password=s3cret", {"password": SECRET}),
    ],
)
def test_every_kind_of_url_is_understood(url: str, expected: dict[str, object]) -> None:
    given = pool_of(url).connection_kwargs
    assert {name: given.get(name) for name in expected} == expected
    assert given["socket_timeout"] == 1


@pytest.mark.parametrize(
    ("url", "nodes", "service", "db"),
    [
        ("redis+sentinel://a", [("a", 26379)], "mymaster", 0),
        ("redis+sentinel://a:1,b:2,c/tally/4", [("a", 1), ("b", 2), ("c", 26379)], "tally", 4),
        ("redis+sentinel://:s3cret@a:1/tally", [("a", 1)], "tally", 0),
        pytest.param(
            *("redis+sentinel://[::1]:26380/tally", [("::1", 26380)], "tally", 0),
        ),
    ],
)
def test_sentinels_are_asked_for_the_primary(
    url: str, nodes: list[tuple[str, int]], service: str, db: int
) -> None:
    pool = pool_of(url)
    assert isinstance(pool, SentinelConnectionPool)
    asked: Any = pool
    sentinels = [one.connection_pool.connection_kwargs for one in asked.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in sentinels] == nodes
    assert (asked.service_name, asked.connection_kwargs["db"]) == (service, db)
    assert asked.is_master


def test_the_password_of_a_sentinel_url_is_for_sentinels_and_for_the_primary() -> None:
    pool = pool_of("redis+sentinel://:p%40ss@a/tally")
    (sentinel,) = pool.sentinel_manager.sentinels
    assert pool.connection_kwargs["password"] == "p@ss"
    assert sentinel.connection_pool.connection_kwargs["password"] == "p@ss"


def test_the_user_of_a_sentinel_url_logs_in() -> None:
    pool = pool_of("redis+sentinel://app:s3cret@a/tally")
    assert pool.connection_kwargs.get("username") == "app"


def test_a_command_is_sent_once_unless_its_sender_repeats_it() -> None:
    retry = pool_of("redis://db").connection_kwargs["retry"]
    assert retry.get_retries() == 0


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://db", "begins with none of"),
        ("db:6379", "begins with none of"),
        ("redis:/db", "begins with none of"),
        ("unix:/run/redis.sock", "begins with none of"),
        (" redis://db", "begins with none of"),
        ("", "begins with none of"),
        ("redis://db:port", "cannot be read"),
        ("redis://db:70000", "cannot be read"),
        ("redis://[::1", "cannot be read"),
        ("redis://db?db=zero", "cannot be read"),
        ("redis://db\n", "there is a blank in it"),
        ("redis://db/zero", "its database is no number"),
        ("redis://db/-1", "its database is no number"),
        ("redis+sentinel://a/tally/zero", "its database is no number"),
        ("redis+sentinel://a:b/tally", "cannot be read"),
        ("redis+sentinel:///tally", "it names no Sentinel"),
        ("redis+sentinel://a,,b/tally", "it names no Sentinel"),
        ("unix://", "it names no path"),
        ("unix://run/redis.sock", "it names no path"),
        ("unix:///nowhere/redis.sock?colour=red", "colour"),
        ("rediss://db?ssl_cert_reqs=perhaps", "perhaps"),
        ("redis://db?protocol=9", "protocol"),
    ],
)
def test_a_url_that_is_none_is_refused_with_where_to_set_it_and_how(url: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem) as raised:
        connect(url, timeout=1, retries=False, decode=True)
    assert raised.value.facts["variable"] == "TALLYSTICK_REDIS_URL"
    for form in ("redis://HOST:PORT/DATABASE", "rediss://", "unix:///PATH", "redis+sentinel://"):
        assert form in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://db:6379/0", "redis://db:6379/0"),
        ("redis://:s3cret@db:6379/0", "redis://db:6379/0"),
        ("redis://app:s3cret@db", "redis://db"),
        ("redis://app:s3c@s3cret@db", "redis://db"),
        ("redis://app:s3cret?more@db", "redis://db"),
        ("redis://app:s3cret/more@db/0?db=1", "redis://db/0"),
        ("rediss://app:s3cret@db", "rediss://db"),
        ("unix://app:s3cret@/run/redis.sock", "unix:///run/redis.sock"),
        ("redis+sentinel://:s3cret@a:1,b:2/tally", "redis+sentinel://a:1,b:2/tally"),
    ],
)
def test_a_url_is_shown_without_its_credentials(url: str, shown: str) -> None:
    assert safe_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "unix:///run/redis.sock?db=0&password=s3cret",
        "redis://db?password=s3cret",
        "redis://db/0?username=app&password=s3cret&db=1",
    ],
)
def test_a_password_among_the_options_of_a_url_is_not_shown_either(url: str) -> None:
    assert pool_of(url).connection_kwargs["password"] == SECRET
    assert SECRET not in safe_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "unix://app:s3cret@/nowhere/redis.sock",
        pytest.param(
            "unix:///nowhere/redis.sock?password=s3cret",
        ),
    ],
)
def test_an_unreachable_store_is_named_without_its_credentials(url: str) -> None:
    store = Store.connect(url, "tallystick", timeout=1)
    with pytest.raises(StoreUnavailable, match=r"/nowhere/redis\.sock") as raised:
        store.ping()
    store.close()
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(
            "redis://app:s3cret/x@db",
        ),
        pytest.param(
            "app:s3cret@db:6379",
        ),
        "ftp://app:s3cret@db",
        "redis://app:s3cret?x@db",
        "redis://app:s3cret",
        "rediss://app:s3cret@db?ssl_cert_reqs=perhaps",
    ],
)
def test_a_refused_url_does_not_give_its_credentials_away(url: str) -> None:
    with pytest.raises(SettingsError) as raised:
        connect(url, timeout=1, retries=False, decode=True)
    assert SECRET not in str(raised.value)
