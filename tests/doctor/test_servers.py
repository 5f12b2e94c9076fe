"""The command on real servers, each with one thing wrong."""

import contextlib
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tallystick.jobs import probe
from tallystick.jobs.checks.exposure import worker_rules
from tallystick.jobs.connection import connect
from tallystick.jobs.embedded import server_program
from tallystick.jobs.keys import Keys
from tallystick.jobs.probe import Probe
from tests.doctor.conftest import APPROVER, Clinic, Launch, command
from tests.server.conftest import Server, Site, eventually
from tests.server.test_topologies import free_port, run_one

pytestmark = pytest.mark.server

KEYS = Keys("tallystick")
ON_A_SOCKET = {"acl-commands"}
"""What is a warning where only this host's users come near."""


def test_a_durable_server_on_a_socket_is_sound(clinic: Clinic, launch: Launch) -> None:
    told = clinic.doctor(launch().url)
    assert (told.status, told.refusing()) == (0, set())
    assert told.having("warn") == ON_A_SOCKET


def test_nothing_is_left_in_the_store(clinic: Clinic, launch: Launch, valkey: str) -> None:
    server = launch(appendfsync="everysec")
    clinic.doctor(server.url)
    assert command(server, "DBSIZE") == 0


def test_without_an_append_only_file_it_refuses(clinic: Clinic, launch: Launch) -> None:
    told = clinic.doctor(launch(appendonly="no", appendfsync="everysec").url)
    assert told.status == 1
    assert told.refusing() == {"appendonly", "appendfsync"}
    assert "CONFIG SET appendonly yes" in told.findings["appendonly"]["remedy"]


def test_the_remedy_of_a_missing_append_only_file_mends_it(clinic: Clinic, launch: Launch) -> None:
    server = launch(appendonly="no", appendfsync="everysec")
    told = clinic.doctor(server.url)
    for name in told.refusing():
        words = told.findings[name]["remedy"].partition("redis-cli ")[2].split()[:4]
        command(server, *words)
    assert clinic.doctor(server.url).refusing() == set()


def test_everysec_is_refused_and_this_valkey_s_premature_waitaof_is_seen(
    clinic: Clinic, launch: Launch, valkey: str
) -> None:
    told = clinic.doctor(launch(appendfsync="everysec").url)
    assert told.refusing() == {"appendfsync", "waitaof-premature"}
    assert told.having("warn") == ON_A_SOCKET | {"torn-tail"}
    assert "Valkey 8" in told.found("waitaof-premature")


def test_a_server_that_evicts_is_refused_before_and_after_it_has(
    clinic: Clinic, launch: Launch
) -> None:
    server = launch(maxmemory_policy="allkeys-lru")
    assert clinic.doctor(server.url).refusing() == {"maxmemory-policy"}
    command(server, "SET", "old", "x" * 1_000_000)
    command(server, "CONFIG", "SET", "maxmemory", "1000000")
    eventually(lambda: command(server, "EXISTS", "old") == 0, "it is evicted")
    command(server, "CONFIG", "SET", "maxmemory", "0")
    told = clinic.doctor(server.url)
    assert told.refusing() == {"maxmemory-policy", "evicted-keys"}
    assert told.found("evicted-keys").startswith("1 keys")


@pytest.mark.parametrize(("share", "severity"), [(0.5, "ok"), (0.88, "warn"), (0.98, "refuse")])
def test_a_server_that_fills_is_warned_of_and_then_refused(
    clinic: Clinic, launch: Launch, share: float, severity: str
) -> None:
    server = launch()
    command(server, "SET", "filler", "x" * 20_000_000)
    used = command(server, "INFO", "memory")["used_memory"]
    command(server, "CONFIG", "SET", "maxmemory", int(used / share))
    assert clinic.doctor(server.url).severity("memory-room") == severity


def test_an_expiry_on_a_record_is_found_and_its_remedy_takes_it_off(
    clinic: Clinic, site: Site
) -> None:
    id = site.approved("item.readable", "x")
    assert clinic.doctor(site.server.url).severity("key-expiry") == "ok"
    command(site.server, "EXPIRE", KEYS.action(id), 3600)
    told = clinic.doctor(site.server.url)
    assert KEYS.action(id) in told.found("key-expiry")
    assert told.refusing() == {"key-expiry"}
    command(site.server, *told.findings["key-expiry"]["remedy"].replace("'", "").split()[1:3])
    assert clinic.doctor(site.server.url).severity("key-expiry") == "ok"


def test_the_expiry_of_a_lease_is_as_it_should_be(clinic: Clinic, launch: Launch) -> None:
    server = launch()
    command(server, "SET", KEYS.lease("a"), "token", "PX", 60_000)
    command(server, "SET", KEYS.recoverer, "token", "PX", 60_000)
    assert clinic.doctor(server.url).severity("key-expiry") == "ok"


def test_keys_of_others_are_seen_whatever_their_bytes(clinic: Clinic, launch: Launch) -> None:
    server = launch()
    command(server, "SET", b"\xff\xfe[red]", b"\xff")
    command(server, "LPUSH", "theirs", "x")
    command(server, "SADD", "rq:queues", "rq:queue:tallystick")
    command(server, "SET", "{other}:due", "x")
    told = clinic.doctor(server.url)
    assert told.severity("shared-instance") == "warn"
    assert "theirs" in told.found("shared-instance")
    assert "\\xff\\xfe[red]" in told.found("shared-instance")
    assert "rq:" not in told.found("shared-instance")
    assert "{other}" not in told.found("shared-instance")
    assert told.status == 0
    _, shown, _ = clinic.run(server.url)
    assert "\\xff\\xfe[red]" in shown


def test_the_sample_is_bounded_however_many_keys_there_are(
    clinic: Clinic, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = launch()
    command(server, "MSET", *(part for n in range(3000) for part in (f"{{tallystick}}:key:{n}", n)))
    monkeypatch.setattr(probe, "_SCAN_ROUNDS", 2)
    seen = clinic.doctor(server.url).found("key-expiry")
    assert 1000 <= int(seen.split()[-2]) < 1500, seen


def place_private_key(clinic: Clinic) -> None:
    file = clinic.folder / "keys" / "approval.key"
    file.write_text(bytes(APPROVER).hex())
    file.chmod(0o600)


@pytest.mark.parametrize("stored", [bytes(APPROVER), bytes(APPROVER).hex().upper().encode()])
def test_a_private_key_in_redis_is_found_and_never_shown(
    clinic: Clinic, launch: Launch, stored: bytes
) -> None:
    server = launch()
    place_private_key(clinic)
    assert clinic.doctor(server.url).severity("signing-key-stored") == "ok"
    command(server, "SET", "backup", b"key: " + stored)
    told = clinic.doctor(server.url)
    assert told.refusing() == {"signing-key-stored"}
    assert "backup" in told.found("signing-key-stored")
    assert bytes(APPROVER).hex() not in told.text.lower()


def test_an_alert_that_nobody_took_is_refused_by_its_age(clinic: Clinic, launch: Launch) -> None:
    server = launch()
    command(server, "RPUSH", KEYS.outbox, json.dumps({"id": "a", "seq": 2}))
    assert clinic.doctor(server.url).severity("alerts-delivered") == "warn"
    for line in ({"at": 1}, {"at": int(time.time() * 1000) - 5_000}):
        command(server, "RPUSH", KEYS.journal("a"), json.dumps(line))
    assert clinic.doctor(server.url).severity("alerts-delivered") == "ok"
    command(server, "LSET", KEYS.journal("a"), 1, json.dumps({"at": 1}))
    told = clinic.doctor(server.url)
    assert told.severity("alerts-delivered") == "refuse"
    assert told.found("alerts-delivered").startswith("1 undelivered")


def test_a_server_that_waits_for_the_fsync_is_not_called_premature(
    clinic: Clinic, launch: Launch, valkey: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Probe, "_wait", staticmethod(lambda one, replicas, ms: (0, 0)))
    told = clinic.doctor(launch(appendfsync="everysec").url)
    assert told.found("waitaof-premature") == "WAITAOF waits for the fsync"


# --- who may connect, and what for ---------------------------------------------------------------


def tcp(server: Server, secret: str = "") -> str:
    return f"redis://{secret}127.0.0.1:{server.options['port']}"


def test_an_open_port_without_a_password_is_refused(clinic: Clinic, launch: Launch) -> None:
    server = launch(port=str(free_port()), bind="*", protected_mode="no")
    told = clinic.doctor(tcp(server))
    assert told.refusing() == {"default-user", "protected-mode", "acl-commands"}
    command(server, "CONFIG", "SET", "requirepass", "secret")
    told = clinic.doctor(tcp(server, ":secret@"))
    assert told.refusing() == {"acl-commands"}
    assert told.having("warn") == {"protected-mode", "acl-user"}
    assert "secret" not in told.text


def test_a_port_for_this_host_only_is_a_warning(clinic: Clinic, launch: Launch) -> None:
    server = launch(port=str(free_port()), bind="127.0.0.1")
    told = clinic.doctor(tcp(server))
    assert (told.severity("default-user"), told.severity("protected-mode")) == ("warn", "ok")


def test_commands_that_can_take_the_server_over_are_refused(clinic: Clinic, launch: Launch) -> None:
    told = clinic.doctor(launch(enable_debug_command="yes").url)
    assert told.refusing() == {"admin-commands"}


@pytest.mark.parametrize("program", ["redis", "valkey"])
def test_the_user_that_the_remedy_makes_is_sound_and_can_work(
    clinic: Clinic, program: str, request: pytest.FixtureRequest
) -> None:
    if program == "valkey":
        request.getfixturevalue("valkey")
    site: Site = request.getfixturevalue("site")
    rules = worker_rules("tallystick")
    command(site.server, "ACL", "SETUSER", "tallystick", "on", ">secret", *rules)
    url = site.server.url.replace("unix://", "unix://tallystick:secret@")
    told = clinic.doctor(url)
    assert (told.refusing(), told.having("warn")) == (set(), set())
    assert told.found("acl-user") == "user tallystick"
    assert run_one(site, url, "x") == "committed"


@pytest.mark.parametrize("program", ["redis", "valkey"])
def test_a_default_user_without_rights_loses_everything_at_a_restart_and_is_refused(
    clinic: Clinic, launch: Launch, program: str, request: pytest.FixtureRequest
) -> None:
    """Found with compose.yaml, whose list of users said `user default off` and no more."""
    if program == "valkey":
        request.getfixturevalue("valkey")
    users = clinic.folder / "users"
    lame = "user default on nopass +@connection"  # for the fixture, which asks whether it is up
    users.write_text(f"{lame}\nuser tallystick on >secret ~* &* +@all\n")
    server = launch(aclfile=str(users))
    url = server.url.replace("unix://", "unix://tallystick:secret@")

    def kept_over_a_restart(key: str) -> bool:
        script = "redis.call('SET', KEYS[1], 'x') redis.call('HSET', KEYS[2], 'x', 'x')"
        as_us(url, "EVAL", script, 2, key, f"{key}-2")
        server.stop()
        server.start()
        return bool(as_us(url, "EXISTS", key))

    assert not kept_over_a_restart("{tallystick}:a")
    told = clinic.doctor(url)
    assert told.refusing() == {"aof-user"}
    for step in re.findall(r"redis-cli (ACL [^,:]+)", told.findings["aof-user"]["remedy"]):
        as_us(url, *step.replace("'", "").split())
    assert clinic.doctor(url).refusing() == set()
    assert clinic.doctor(server.url).refusing() == {"server-answers"}
    as_us(url, "ACL", "SETUSER", "default", "on")
    as_us(url, "ACL", "SAVE")
    assert kept_over_a_restart("{tallystick}:b")


def as_us(url: str, *words: object) -> Any:
    client = connect(url, timeout=5, retries=False, decode=True)
    with contextlib.closing(client):
        return client.execute_command(*words)  # type: ignore[no-untyped-call]


@pytest.fixture
def closed(launch: Launch) -> str:
    """A server whose provider has closed CONFIG and ACL."""
    server = launch()
    rules = ("~*", "&*", "+@all", "-config", "-acl")
    command(server, "ACL", "SETUSER", "guest", "on", ">secret", *rules)
    return server.url.replace("unix://", "unix://guest:secret@")


CLOSED = {
    "appendfsync",
    "aof-user",
    "fsync-on-rewrite",
    "stop-writes-on-bgsave-error",
    "torn-tail",
    "protected-mode",
    "admin-commands",
    "acl-user",
    "acl-commands",
}


def test_what_a_provider_closes_is_unknown_and_refused(clinic: Clinic, closed: str) -> None:
    told = clinic.doctor(closed)
    assert told.status == 1
    assert told.having("unknown") == CLOSED
    assert told.having("refuse") == set()
    assert "config|get" in told.found("appendfsync")
    assert "TALLYSTICK_ALLOW_UNSAFE=appendfsync" in told.findings["appendfsync"]["remedy"]


def test_a_server_that_tells_nothing_is_unknown_and_not_a_crash(
    clinic: Clinic, launch: Launch
) -> None:
    server = launch()
    command(
        server, "ACL", "SETUSER", "guest", "on", ">secret", "~*", "+@all", "-@dangerous", "-scan"
    )
    told = clinic.doctor(server.url.replace("unix://", "unix://guest:secret@"))
    assert told.having("refuse") == set()
    assert {"server-version", "appendonly", "key-expiry"} <= told.having("unknown")


# --- the way there -------------------------------------------------------------------------------


def test_a_server_that_is_away_is_one_refusal_and_the_rest_is_still_told(clinic: Clinic) -> None:
    told = clinic.doctor(f"unix://{clinic.folder}/none.sock")
    assert told.refusing() == {"server-answers"}
    assert told.severity("trusted-keys") == "ok"
    assert "appendonly" not in told.findings


def test_a_wrong_password_is_said_without_the_password(clinic: Clinic, launch: Launch) -> None:
    server = launch()
    command(server, "CONFIG", "SET", "requirepass", "right")
    told = clinic.doctor(server.url.replace("unix://", "unix://:wrong-one@"))
    assert told.refusing() == {"server-answers"}
    assert "wrong-one" not in told.text


def test_a_url_that_loosens_the_client_is_refused(clinic: Clinic, launch: Launch) -> None:
    assert clinic.doctor(f"{launch().url}?socket_timeout=60").refusing() == {"client-timeout"}


def test_a_server_that_loads_is_refused(clinic: Clinic, launch: Launch) -> None:
    server = launch()
    for number in range(100):
        command(server, "SET", f"{{tallystick}}:key:{number}", os.urandom(2048))
    command(server, "BGREWRITEAOF")
    eventually(lambda: not rewriting(server), "the base of the file is written")
    server.stop()
    restart_slowly(server)
    told = clinic.doctor(server.url)
    assert "server-loading" in told.refusing()
    assert "server-answers" not in told.refusing()


def rewriting(server: Server) -> bool:
    info = command(server, "INFO", "persistence")
    return bool(info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"])


def restart_slowly(server: Server) -> None:
    """Start it again so that it needs a fifth of a second for each key that it loads."""
    options = {
        "port": "0",
        "unixsocket": f"{server.folder}/redis.sock",
        "dir": str(server.folder),
        "appendonly": "yes",
        "logfile": "again.log",
        "key-load-delay": "200000",
        "loading-process-events-interval-bytes": "1024",
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    server.process = subprocess.Popen([server_program(), *flags])
    log = server.folder / "again.log"
    eventually(lambda: log.exists() and "RDB is base AOF" in log.read_text(), "it loads")


def test_the_embedded_server_is_sound_from_the_first_moment(clinic: Clinic, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    told = clinic.doctor(None, data_dir=str(folder), key_dir=None)
    assert (told.status, told.having("warn") - {"data-dir"}) == (0, ON_A_SOCKET)
    assert sorted(entry.name for entry in folder.iterdir()) == ["server"]
