"""Facts with which every check is content, and a way to change one of them."""

from dataclasses import replace
from typing import Any

from nacl.signing import SigningKey

from tallystick.jobs.checks.facts import (
    Access,
    Client,
    Clock,
    Endpoint,
    Facts,
    KeyFolder,
    Look,
    Outbox,
    Replica,
    Replication,
    Sample,
    Server,
    Timing,
)

PUBLIC = bytes(SigningKey(b"k" * 32).verify_key).hex()

OPTIONS = {
    "aof-load-truncated": "yes",
    "appendfsync": "always",
    "bind": "127.0.0.1 -::1",
    "dir": "/data",
    "enable-debug-command": "no",
    "enable-module-command": "no",
    "enable-protected-configs": "no",
    "min-replicas-max-lag": "10",
    "min-replicas-to-write": "0",
    "no-appendfsync-on-rewrite": "no",
    "port": "6379",
    "protected-mode": "yes",
    "stop-writes-on-bgsave-error": "yes",
    "tls-auth-clients": "yes",
    "tls-port": "0",
}

SERVER = Server(
    name="Redis",
    version="7.4.1",
    compatible=(7, 4),
    role="master",
    loading=False,
    clustered=False,
    aof_enabled=True,
    last_write="ok",
    last_rewrite="ok",
    last_snapshot="ok",
    policy="noeviction",
    evicted=0,
    used=50,
    limit=100,
    clients=10,
    most_clients=10_000,
)

HEALTHY = Facts(
    timing=Timing(lease=15, effect=10, verify=3, margin=0.5, trip=0.002),
    server=SERVER,
    config=OPTIONS,
    clock=Clock(now=Look(1060.0, 1060.5, 60.0, 0.001), before=Look(1000.0, 1000.5, 0.0, 0.001)),
    unloadable=(),
    endpoint=Endpoint(
        url="rediss://localhost:6379",
        host="localhost",
        encrypted=True,
        embedded=False,
        namespace="shop",
    ),
    client=Client(retries=0, timeout=5.0),
    sample=Sample(seen=100, ours=90),
    replication=Replication(watched=False, electable=0),
    access=Access(user="tallystick", dangerous=()),
    passwordless=False,
    outbox=Outbox(waiting=0, oldest=None),
    keys=KeyFolder(path="/keys", chosen=True, trusted={"k1": PUBLIC}),
    rq_version="3.0.0",
)


def but(**changes: Any) -> Facts:
    """The healthy facts, but these sections."""
    return replace(HEALTHY, **changes)


def server(**changes: Any) -> Facts:
    """The healthy facts, but INFO tells this."""
    return but(server=replace(SERVER, **changes))


def option(**changes: str) -> Facts:
    """The healthy facts, but these options (`a_b` is `a-b`) are set so."""
    given = {name.replace("_", "-"): value for name, value in changes.items()}
    return but(config=OPTIONS | given)


def at(url: str, host: str, **changes: Any) -> Facts:
    """The healthy facts, but the server is reached here."""
    place = Endpoint(url=url, host=host, encrypted=False, embedded=False, namespace="shop")
    return but(endpoint=place, **changes)


def keys(**changes: Any) -> Facts:
    """The healthy facts, but the key folder is so."""
    assert isinstance(HEALTHY.keys, KeyFolder)
    return but(keys=replace(HEALTHY.keys, **changes))


def replicated(*lags: int, **changes: Any) -> Facts:
    """The healthy facts, but with replicas that were last heard so many seconds ago."""
    replicas = tuple(
        Replica(f"10.0.0.{number}:6379", "online", lag) for number, lag in enumerate(lags, 2)
    )
    given = {"watched": False, "electable": len(lags)} | changes
    return but(server=replace(SERVER, replicas=replicas), replication=Replication(**given))
