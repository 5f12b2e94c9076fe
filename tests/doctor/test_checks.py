"""Every check, seen both ways: content with healthy facts, and not with each fault it is for."""

import re
from dataclasses import fields, replace
from typing import Any

import pytest

from tallystick.jobs.checks import CHECKS, Check
from tallystick.jobs.checks import facts as known_facts
from tallystick.jobs.checks.facts import (
    Access,
    Barrier,
    Client,
    Clock,
    Denied,
    Facts,
    Look,
    Outbox,
    Sample,
    Timing,
)
from tallystick.jobs.checks.finding import Finding, Severity
from tallystick.jobs.doctor import essential, examine
from tests.doctor.healthy import (
    HEALTHY,
    OPTIONS,
    PUBLIC,
    at,
    but,
    keys,
    option,
    replicated,
    server,
)

REFUSE, WARN, OK, UNKNOWN = Severity.REFUSE, Severity.WARN, Severity.OK, Severity.UNKNOWN

BY_NAME = {check.name: check for check in CHECKS}
NOPERM = Denied("CONFIG GET", "NOPERM")
IDENTITY_POINT = "01" + "00" * 31


def look(redis: float, local: float = 1060.5, steady: float = 60.0, trip: float = 0.001) -> Look:
    return Look(redis, local, steady, trip)


def clock(now: Look, before: Look | None = None) -> Facts:
    return but(clock=Clock(now, before))


def timing(**changes: float) -> Facts:
    return but(timing=replace(HEALTHY.timing, **changes))


def embedded(kind: str) -> Facts:
    facts = at("unix:///data/redis.sock", "", filesystem=kind)
    assert not isinstance(facts.endpoint, Denied)
    return replace(facts, endpoint=replace(facts.endpoint, embedded=True))


def open_network(**options: str) -> Facts:
    """Anyone may connect from anywhere, seen from the server's own host."""
    given = {"bind": "* -::*", "protected-mode": "no"} | options
    return at("redis://localhost", "localhost", passwordless=True, config=OPTIONS | given)


def waiting(number: int, **changes: Any) -> Facts:
    """Two replicas that keep up, and a Tallystick that waits for so many."""
    return replace(replicated(0, 0, barrier=Barrier(2, 1, 2), **changes), waits_for=number)


def safe_replicas(fewest: str, lag: str) -> Facts:
    given = {"min-replicas-to-write": fewest, "min-replicas-max-lag": lag}
    return replace(replicated(0, 0), config=OPTIONS | given)


def barrier_of(compatible: tuple[int, int]) -> Facts:
    facts = replicated(0, 0, barrier=Barrier(2, 1, 2))
    assert not isinstance(facts.server, Denied)
    return replace(facts, server=replace(facts.server, compatible=compatible))


CASES: list[tuple[str, Facts, Severity, str]] = [
    ("server-answers", but(unreachable="Connection refused"), REFUSE, "Connection refused"),
    ("server-version", server(version="6.2.7", compatible=(6, 2)), REFUSE, "Redis 6.2.7"),
    ("server-version", server(name="Valkey", version="8.1.8", compatible=(7, 2)), OK, "Valkey 8"),
    ("server-version", server(version="7.0.0", compatible=(7, 0)), OK, "Redis 7.0.0"),
    ("server-role", server(role="slave"), REFUSE, "role slave"),
    ("server-role", server(role=""), UNKNOWN, "does not tell"),
    ("server-loading", server(loading=True), REFUSE, "loading"),
    ("cluster-mode", server(clustered=True), REFUSE, "cluster"),
    ("client-limit", server(clients=8000), WARN, "8000 of 10000"),
    ("client-limit", server(clients=8000, most_clients=0), OK, "any number"),
    ("appendonly", server(aof_enabled=False), REFUSE, "appendonly no"),
    ("appendfsync", option(appendfsync="everysec"), REFUSE, "everysec"),
    ("appendfsync", option(appendfsync="no"), REFUSE, "appendfsync no"),
    ("fsync-on-rewrite", option(no_appendfsync_on_rewrite="yes"), REFUSE, "yes"),
    ("aof-status", server(last_write="err"), REFUSE, "last write"),
    ("aof-status", server(last_rewrite="err"), REFUSE, "last rewrite"),
    ("aof-status", server(last_rewrite=""), UNKNOWN, "aof_last_bgrewrite_status"),
    ("aof-user", but(unloadable=("HSET", "SET")), REFUSE, "may not run HSET, SET"),
    ("aof-user", but(unloadable=NOPERM), UNKNOWN, "NOPERM"),
    ("snapshot-status", server(last_snapshot="err"), REFUSE, "snapshot"),
    ("stop-writes-on-bgsave-error", option(stop_writes_on_bgsave_error="no"), REFUSE, "no"),
    ("torn-tail", option(appendfsync="everysec"), WARN, "aof-load-truncated yes"),
    ("torn-tail", option(appendfsync="everysec", aof_load_truncated="no"), OK, "not loaded"),
    ("maxmemory-policy", server(policy="allkeys-lru"), REFUSE, "allkeys-lru"),
    ("maxmemory-policy", server(policy="volatile-ttl"), REFUSE, "volatile-ttl"),
    ("maxmemory-policy", server(policy=""), UNKNOWN, "maxmemory_policy"),
    ("evicted-keys", server(evicted=3), REFUSE, "3 keys"),
    ("memory-room", server(used=81), WARN, "81%"),
    ("memory-room", server(used=96), REFUSE, "96%"),
    ("memory-room", server(used=80), OK, "80%"),
    ("memory-room", server(used=96, limit=0), OK, "no maxmemory"),
    ("key-expiry", but(sample=Sample(9, 9, expiring=("{shop}:key:a",))), REFUSE, "{shop}:key:a"),
    (
        "shared-instance",
        but(sample=Sample(9, 4, foreign=tuple("abcde"))),
        WARN,
        "a, b, c and 2 more",
    ),
    ("shared-instance", but(sample=Sample(9, 4, foreign=tuple("abc"))), WARN, "a, b, c (of"),
    ("signing-key-stored", but(sample=Sample(9, 9, secrets=("k",))), REFUSE, "lies in k"),
    ("alerts-delivered", but(outbox=Outbox(2, 61.0)), REFUSE, "2 undelivered"),
    ("alerts-delivered", but(outbox=Outbox(2, 59.0)), OK, "the oldest for 59 s"),
    ("alerts-delivered", but(outbox=Outbox(2, None)), WARN, "not known"),
    ("replica-count", replicated(0), REFUSE, "1 electable"),
    ("replica-count", replicated(watched=True), REFUSE, "0 electable"),
    ("replica-count", replicated(0, 0, watched=True, electable=3), REFUSE, "2 connected"),
    ("replica-count", replicated(0, 0), OK, "2 electable"),
    ("replica-link", replicated(0, 6), REFUSE, "10.0.0.3:6379 is online, 6 s silent"),
    ("replica-link", replicated(0, 5), OK, "2 replicas"),
    ("min-replicas-to-write", replicated(0, 0), REFUSE, "min-replicas-to-write 0"),
    ("min-replicas-max-lag", replicated(0, 0), REFUSE, "min-replicas-max-lag 10"),
    ("min-replicas-to-write", safe_replicas("1", "5"), OK, "min-replicas-to-write 1"),
    ("min-replicas-max-lag", safe_replicas("1", "0"), REFUSE, "min-replicas-max-lag 0"),
    ("min-replicas-max-lag", safe_replicas("1", "1"), OK, "min-replicas-max-lag 1"),
    ("min-replicas-max-lag", safe_replicas("1", "5"), OK, "min-replicas-max-lag 5"),
    ("min-replicas-max-lag", safe_replicas("1", "6"), REFUSE, "min-replicas-max-lag 6"),
    ("replica-barrier", barrier_of((7, 1)), REFUSE, "has no WAITAOF"),
    ("replica-barrier", barrier_of((7, 2)), WARN, "2 of 2"),
    ("replica-barrier", replicated(0, 0, barrier=Barrier(2, 1, 1)), REFUSE, "1 of 2"),
    ("replica-barrier", replicated(0, 0, barrier=Barrier(2, 0, 2)), REFUSE, "0 local"),
    ("replica-barrier", replicated(0, 0, barrier=Barrier(2, 1, 2)), WARN, "waits for 0"),
    ("replica-barrier", waiting(2), OK, "2 of 2"),
    ("replica-barrier", waiting(3), OK, "2 of 2"),
    ("replica-barrier", waiting(1), REFUSE, "waits for 1"),
    ("replica-barrier", waiting(0, watched=True), REFUSE, "waits for 0"),
    ("replica-barrier", waiting(2, watched=True), OK, "2 of 2"),
    ("replica-barrier", replicated(0, 0, barrier=Denied("SET", "NOPERM")), UNKNOWN, "NOPERM"),
    ("waitaof-premature", but(premature=(0.0001,) * 5), REFUSE, "before the fsync"),
    ("waitaof-premature", but(premature=(0.0001, float("inf"))), OK, "waits for the fsync"),
    ("waitaof-premature", but(premature=(0.0001, 0.0001, 0.0001, 0.0001, 0.2)), OK, "waits"),
    ("clock-skew", clock(look(1062.6)), REFUSE, "2.100 s ahead"),
    ("clock-skew", clock(look(1058.4)), REFUSE, "2.100 s behind"),
    ("clock-skew", clock(look(1062.6, trip=0.4)), OK, "ahead"),
    ("clock-step", clock(look(1151), look(1000, steady=0)), REFUSE, "+91.0 s within the last 60 s"),
    ("clock-step", clock(look(1050), look(1000, steady=0)), REFUSE, "-10.0 s"),
    ("clock-step", clock(look(1060.9), look(1000, steady=0)), OK, "steady"),
    ("clock-step", clock(look(1050)), OK, "from now on"),
    ("lease-fit", timing(verify=4.6), WARN, "renews"),
    ("lease-fit", timing(verify=4.5, trip=0), WARN, "renews"),
    ("lease-fit", timing(verify=4.4, trip=0), OK, "effect 10"),
    ("lease-fit", timing(trip=2.25), REFUSE, "does not fit"),
    ("lease-fit", timing(effect=14.5), REFUSE, "does not fit"),
    ("client-retries", but(client=Client(10, 5)), REFUSE, "10 times"),
    ("client-timeout", but(client=Client(0, 5.1)), REFUSE, "5.1"),
    ("client-timeout", but(client=Client(0, None)), REFUSE, "none"),
    ("rq-version", but(rq_version="2.6.0"), REFUSE, "RQ 2.6.0"),
    ("rq-version", but(rq_version=""), REFUSE, "not installed"),
    ("default-user", open_network(), REFUSE, "from the network"),
    ("default-user", open_network(**{"protected-mode": "yes"}), WARN, "from its own host"),
    ("default-user", open_network(bind="127.0.0.1 ::1"), WARN, "from its own host"),
    ("default-user", open_network(port="0"), OK, "unix socket"),
    ("default-user", open_network(port="0", **{"tls-port": "1"}), OK, "network"),
    (
        "default-user",
        open_network(port="0", **{"tls-port": "1", "tls-auth-clients": "no"}),
        REFUSE,
        "from the network",
    ),
    ("default-user", at("redis://db", "db", passwordless=True), REFUSE, "from the network"),
    ("default-user", at("redis://db", "db", passwordless=True, config=NOPERM), REFUSE, "network"),
    ("default-user", at("redis://::1", "::1", passwordless=True, config=NOPERM), WARN, "own host"),
    ("default-user", at("unix:///s", "", passwordless=True, config=NOPERM), OK, "unix socket"),
    ("protected-mode", open_network(), REFUSE, "protected-mode no"),
    ("protected-mode", replace(open_network(), passwordless=False), WARN, "protected-mode no"),
    ("protected-mode", open_network(bind="127.0.0.1"), OK, "protected-mode no"),
    ("encryption", at("redis://db", "db"), WARN, "plain text to db"),
    ("encryption", at("redis://127.0.0.1", "127.0.0.1"), OK, "nothing leaves"),
    ("admin-commands", option(enable_debug_command="yes"), REFUSE, "enable-debug-command yes"),
    ("admin-commands", option(enable_module_command="local"), REFUSE, "local"),
    ("acl-user", but(access=Access("default", ())), WARN, "default"),
    ("acl-user", at("unix:///s", "", access=Access("default", ())), OK, "default"),
    ("acl-commands", but(access=Access("default", ("FLUSHALL",))), REFUSE, "FLUSHALL"),
    ("acl-commands", at("unix:///s", "", access=Access("default", ("KEYS",))), WARN, "KEYS"),
    ("signing-key-file", keys(mode=0o640, public=PUBLIC), REFUSE, "0640"),
    ("signing-key-file", keys(mode=0o600, public=PUBLIC, folder_mode=0o770), REFUSE, "0770"),
    ("signing-key-file", keys(mode=0o600, private_problem="no hex"), REFUSE, "no hex"),
    ("signing-key-file", keys(mode=0o600, public=PUBLIC), OK, "0600"),
    ("trusted-keys", keys(trusted_problem="not JSON"), REFUSE, "not JSON"),
    ("trusted-keys", keys(trusted=None), REFUSE, "there is no"),
    ("trusted-keys", keys(trusted=None, chosen=False), OK, "none yet"),
    ("trusted-keys", keys(trusted={}), REFUSE, "trusts no key"),
    ("trusted-keys", keys(trusted={"evil": IDENTITY_POINT}), REFUSE, "evil"),
    ("trusted-keys", keys(trusted={"short": "abcd"}), REFUSE, "short"),
    ("trusted-keys", keys(trusted={"words": "not hex"}), REFUSE, "words"),
    ("trusted-keys", keys(mode=0o600, public="ab" * 32), REFUSE, "not trusted"),
    ("trusted-keys", keys(mode=0o600, public=PUBLIC), OK, "1 trusted"),
    ("key-separation", keys(mode=0o600, public=PUBLIC), WARN, "an approver and a worker"),
    ("data-dir", embedded("tmpfs"), WARN, "tmpfs"),
    ("data-dir", embedded("ext4"), OK, "ext4"),
    ("data-dir", embedded(""), OK, "a disk"),
]

PARTS = [field.name for field in fields(Facts) if "Denied" in str(field.type)]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_check_is_content_with_healthy_facts(check: Check) -> None:
    assert check(HEALTHY).severity is OK, check(HEALTHY)


@pytest.mark.parametrize(
    ("name", "facts", "severity", "found"),
    CASES,
    ids=[f"{number}: {name}, {said}" for number, (name, _, said, _) in enumerate(CASES)],
)
def test_a_fault_is_found(name: str, facts: Facts, severity: Severity, found: str) -> None:
    finding = BY_NAME[name](facts)
    assert finding.severity is severity, finding
    assert found in finding.found
    assert bool(finding.remedy) == (severity is not OK)


def test_every_check_is_seen_to_find_a_fault() -> None:
    assert {name for name, _, severity, _ in CASES if severity is not OK} == set(BY_NAME)


@pytest.mark.parametrize("part", PARTS)
def test_what_cannot_be_read_is_unknown_with_the_reason_and_the_waiver(part: str) -> None:
    facts = but(**{part: Denied(f"ASK {part}", "the provider says no")})
    unread = [finding for finding in examine(facts) if finding.severity is UNKNOWN]
    assert unread
    for finding in unread:
        assert finding.found == f"ASK {part}: the provider says no"
        assert f"ASK {part}" in finding.remedy
        assert f"TALLYSTICK_ALLOW_UNSAFE={finding.name}" in finding.remedy
    assert all(f.severity in {OK, UNKNOWN} for f in examine(facts))


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_the_server_does_not_have_is_unknown_or_not_asked_for(name: str) -> None:
    facts = but(config={key: value for key, value in OPTIONS.items() if key != name})
    for finding in examine(facts):
        assert finding.severity is OK or f"CONFIG GET {name}" in finding.found


def test_the_options_asked_of_the_server_are_those_that_the_checks_know() -> None:
    assert set(known_facts.OPTIONS) == set(OPTIONS)


def test_with_nothing_but_the_timing_every_other_check_is_unknown_and_none_fails() -> None:
    bare = Facts(timing=Timing(15, 10, 3, 0.5, 0.002))
    assert {finding.severity for finding in examine(bare)} >= {UNKNOWN}


def test_a_refusal_and_what_is_unknown_stop_work_and_nothing_else_does() -> None:
    assert {severity for severity in Severity if severity.refuses} == {REFUSE, UNKNOWN}


def test_findings_come_worst_first() -> None:
    facts = but(premature=(0.0,) * 5, access=Access("default", ()), outbox=NOPERM)
    order = [finding.severity for finding in examine(facts)]
    assert order == sorted(order, key=list(Severity).index)
    assert order[:3] == [REFUSE, UNKNOWN, WARN]


def test_of_a_server_that_is_away_only_this_host_is_judged() -> None:
    found = {finding.name: finding.severity for finding in examine(but(unreachable="gone"))}
    assert found.pop("server-answers") is REFUSE
    assert set(found) == {check.name for check in CHECKS if check.local} - {"server-answers"}
    assert set(found.values()) == {OK}


def test_the_essential_part_covers_version_role_durability_eviction_replicas_and_times() -> None:
    assert {finding.name for finding in essential(HEALTHY)} == {
        "server-version",
        "server-role",
        "server-loading",
        "appendonly",
        "appendfsync",
        "fsync-on-rewrite",
        "aof-status",
        "aof-user",
        "maxmemory-policy",
        "evicted-keys",
        "replica-barrier",
        "clock-skew",
        "clock-step",
        "lease-fit",
    }


def test_the_essential_part_asks_for_nothing_but_what_a_worker_gathers() -> None:
    gathered = {
        "timing",
        "server",
        "config",
        "clock",
        "unloadable",
        "waits_for",
        "replication",
    }
    only: dict[str, Any] = {name: getattr(HEALTHY, name) for name in gathered}
    assert {finding.severity for finding in essential(Facts(**only))} == {OK}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_has_a_kebab_name_and_says_why_in_one_sentence(check: Check) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", check.name)
    assert check.why.endswith(".")
    assert ". " not in check.why


def test_no_two_checks_share_a_name() -> None:
    assert len(BY_NAME) == len(CHECKS)


def test_a_finding_says_what_json_says() -> None:
    finding = BY_NAME["appendfsync"](option(appendfsync="everysec"))
    assert Finding.model_validate_json(finding.model_dump_json()) == finding
    assert set(finding.model_dump()) == {"name", "severity", "found", "why", "remedy", "waived"}
