"""The doctor's instruments: what it asks a server, each question a typed method.

A question that is refused (an ACL, a provider that closes CONFIG) is answered with `Denied`.
"""

import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from tallystick.core.errors import StoreError, StoreUnavailable
from tallystick.jobs.checks.facts import (
    OPTIONS,
    Access,
    Barrier,
    Client,
    Denied,
    Endpoint,
    Look,
    Outbox,
    Replica,
    Replication,
    Sample,
    Server,
)
from tallystick.jobs.connection import connect, safe_url
from tallystick.jobs.wire import Wire, await_replicas

Answer = TypeVar("Answer")

_SCAN_ROUNDS, _SCAN_COUNT = 10, 500
_LONGEST_VALUE = 1024
_PREMATURE_WRITES = 5
_PREMATURE_MS = 100
_BARRIER_SECONDS = 2.0
_PROBE_TTL_MS = 60_000

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

DANGEROUS = {
    "FLUSHALL": (),
    "FLUSHDB": (),
    "SWAPDB": ("0", "1"),
    "CONFIG SET": ("maxmemory", "0"),
    "DEBUG": ("SLEEP", "0"),
    "KEYS": ("*",),
    "SCRIPT FLUSH": (),
    "FUNCTION FLUSH": (),
    "REPLICAOF": ("NO", "ONE"),
    "SHUTDOWN": (),
    "ACL SETUSER": ("x",),
    "MODULE LOAD": ("x",),
}
"""What no worker needs and every accident or attacker wants."""


REPLAYED = {
    "SET": ("x",),
    "DEL": (),
    "HSET": ("x", "x"),
    "HINCRBY": ("x", "1"),
    "RPUSH": ("x",),
    "LREM": ("1", "x"),
    "ZADD": ("1", "x"),
    "ZREM": ("x",),
}
"""What our scripts leave in the append-only file, with the arguments after the key."""


class Probe(Wire):
    """Asks a server about itself. Only `barrier` and `premature` write, to a key of their own."""

    @classmethod
    def connect(cls, url: str, namespace: str, *, timeout: float = 5, replicas: int = 0) -> Self:
        """A probe of this URL; nothing is sent yet. It reads bytes: foreign keys can be any."""
        client = connect(url, timeout=timeout, retries=False, decode=False)
        return cls(client, namespace, url=safe_url(url), replicas=replicas)

    @property
    def url(self) -> str:
        """Where it looks, without credentials."""
        return self._url

    # --- what the essential checks need: raises StoreUnavailable if the server does not answer ---

    def server(self) -> Server | Denied:
        """What INFO says."""
        return self._ask("INFO", lambda: _server(self._client.info()))

    def config(self) -> Mapping[str, str] | Denied:
        """The options that checks ask for, as far as the server has them."""

        def ask() -> dict[str, str]:
            found = self._client.config_get(*OPTIONS)
            return {str(name): str(value) for name, value in found.items()}

        return self._ask("CONFIG GET", ask)

    def look(self) -> Look:
        """The clocks of Redis and of this host, at one instant."""
        with self._errors():
            local, before = time.time(), time.clock_gettime(_STEADY)
            seconds, micros = self._client.time()
            trip = time.clock_gettime(_STEADY) - before
        return Look(seconds + micros / 1e6, local + trip / 2, before + trip / 2, trip)

    def unloadable(self) -> tuple[str, ...] | Denied:
        """Which commands the user `default`, as whom the server loads its append-only file, may
        not run. None of them is run."""

        def ask() -> tuple[str, ...]:
            own = {command: (self._own_key, *rest) for command, rest in REPLAYED.items()}
            allowed = self._allowed("default", own)
            return tuple(command for command in own if command not in allowed)

        return self._ask("ACL DRYRUN", ask)

    # --- what the doctor asks besides ------------------------------------------------------------

    def client(self) -> Client:
        """How the protocol's client would behave at this URL; a URL can carry options."""
        given = self._client.get_connection_kwargs()
        return Client(given["retry"].get_retries(), given.get("socket_timeout"))

    def endpoint(self, *, embedded: bool) -> Endpoint | Denied:
        """Where the server is; with Sentinel, where it is now."""

        def ask() -> Endpoint:
            given, pool = self._client.get_connection_kwargs(), self._pool
            host = "" if given.get("path") else str(given.get("host") or "")
            if hasattr(pool, "get_master_address"):
                host = str(pool.get_master_address()[0])
            encrypted = self._url.startswith("rediss://")
            return Endpoint(self._url, host, encrypted, embedded, self.keys.namespace)

        return self._inquire("SENTINEL GET-MASTER-ADDR-BY-NAME", ask)

    def passwordless(self) -> bool | Denied:
        """Whether somebody without credentials is let in."""
        given = dict(self._client.get_connection_kwargs())
        secret = [given.pop(name, None) for name in ("password", "credential_provider")]
        given.pop("username", None)
        if not any(secret):
            return True

        def ask() -> bool:
            stranger = self._pool.connection_class(**given)
            try:
                stranger.connect()
                stranger.send_command("PING")
                stranger.read_response()
            finally:
                stranger.disconnect()
            return True

        answer = self._inquire("PING", ask)
        return not isinstance(answer, Denied)

    def access(self) -> Access | Denied:
        """Who we are, and which dangerous commands we could run. None of them is run."""

        def ask() -> Access:
            user = _text(self._client.acl_whoami())
            return Access(user, self._allowed(user, DANGEROUS))

        return self._inquire("ACL WHOAMI and ACL DRYRUN", ask)

    def _allowed(self, user: str, commands: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """Those of the commands, each with its arguments, that this user could run."""
        pipe: Any = self._client.pipeline(transaction=False)
        for command, words in commands.items():
            pipe.execute_command("ACL", "DRYRUN", user, *command.split(), *words)
        answers = pipe.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and "dryrun" in str(answer).lower():
                raise answer
        return tuple(
            command
            for command, answer in zip(commands, answers, strict=True)
            if not isinstance(answer, Exception) and _text(answer) == "OK"
        )

    def outbox(self) -> Outbox | Denied:
        """How many alerts wait, and for how long the oldest has."""

        def ask() -> Outbox:
            pipe = self._client.pipeline(transaction=False)
            pipe.llen(self.keys.outbox)
            pipe.lindex(self.keys.outbox, 0)
            pipe.time()
            waiting, oldest, (seconds, micros) = pipe.execute()
            at = self._raised_at(oldest) if oldest else None
            return Outbox(waiting, seconds + micros / 1e6 - at / 1000 if at else None)

        return self._inquire("LRANGE", ask)

    def _raised_at(self, alert: bytes) -> int | None:
        """When an alert was raised, in milliseconds: its journal line knows."""
        try:
            told = json.loads(alert)
            line = self._client.lindex(self.keys.journal(told["id"]), told["seq"] - 1)
            return int(json.loads(line)["at"])  # type: ignore[arg-type]
        except (ValueError, KeyError, TypeError):
            return None

    def sample(self, private: Sequence[bytes]) -> Sample | Denied:
        """Look at some thousand keys: what is ours, what expires, and whether a value holds one of
        these spellings of a private key."""

        def ask() -> Sample:
            cursor, seen, ours = 0, 0, 0
            expiring: list[str] = []
            foreign: list[str] = []
            exposed: list[str] = []
            for _ in range(_SCAN_ROUNDS):
                scan: Any = self._client.scan(cursor, count=_SCAN_COUNT)
                cursor, keys = scan
                for key, ttl, value in self._look_into(keys, read=bool(private)):
                    seen += 1
                    ours += self._is_ours(key)
                    if ttl >= 0 and self._must_stay(key):
                        expiring.append(key)
                    if not key.startswith(("{", "rq:")):
                        foreign.append(key)
                    if any(spelling in value for spelling in private):
                        exposed.append(key)
                if cursor == 0:
                    break
            return Sample(seen, ours, tuple(expiring), tuple(foreign), tuple(exposed))

        return self._inquire("SCAN", ask)

    def _look_into(self, keys: Sequence[bytes], *, read: bool) -> list[tuple[str, int, bytes]]:
        """Name, TTL and the beginning of the value (of strings, if `read`) of these keys."""
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.ttl(key)
            if read:
                pipe.getrange(key, 0, _LONGEST_VALUE - 1)
        answers = pipe.execute(raise_on_error=False)
        step = 2 if read else 1
        return [
            (
                key.decode("utf-8", "backslashreplace"),
                ttl if isinstance(ttl, int) else -1,
                value if isinstance(value, bytes) else b"",
            )
            for key, ttl, value in zip(
                keys, answers[::step], answers[1::2] if read else [b""] * len(keys), strict=True
            )
        ]

    def _is_ours(self, key: str) -> bool:
        return key.startswith("{" + self.keys.namespace + "}:")

    def _must_stay(self, key: str) -> bool:
        """Whether it carries meaning, so that it must never vanish: all but leases and locks."""
        may_go = {self.keys.recoverer, self._own_key}
        return self._is_ours(key) and not (key in may_go or key.startswith(self.keys.lease("")))

    def replication(self, server: Server | Denied) -> Replication | Denied:
        """Who could be promoted, and whether a write reaches their disks."""

        def ask() -> Replication:
            replicas = () if isinstance(server, Denied) else server.replicas
            watched = getattr(self._pool, "sentinel_manager", None)
            electable = len(replicas)
            if watched is not None:
                known = watched.sentinels[0].sentinel_slaves(self._pool.service_name)
                electable = sum(int(replica["slave-priority"]) != 0 for replica in known)
            wanted = max(electable, len(replicas), self.replicas)
            barrier = self.barrier(wanted) if wanted else None
            return Replication(watched is not None, electable, barrier)

        return self._inquire("SENTINEL REPLICAS", ask)

    def barrier(self, wanted: int) -> Barrier | Denied:
        """Write, and wait on the same connection for this disk and so many replicas' disks. It must
        be all of them: the server counts also those that are never promoted."""

        def ask() -> Barrier:
            with self._one_connection() as one:
                one.set(self._own_key, secrets.token_hex(8), px=_PROBE_TTL_MS)
                local, replicas = await_replicas(one, wanted, self._patience_ms() / 1000)
                one.delete(self._own_key)
            return Barrier(wanted, int(local), int(replicas))

        return self._inquire("WAITAOF", ask)

    def premature(self) -> tuple[float, ...] | Denied:
        """Write and wait for the disk some times in a row; how long each confirmation took, up to
        the first that takes long. Under everysec a server that tells the truth needs about a
        second from one to the next."""

        def ask() -> tuple[float, ...]:
            took: list[float] = []
            with self._one_connection() as one:
                while len(took) < _PREMATURE_WRITES:
                    one.set(self._own_key, secrets.token_hex(8), px=_PROBE_TTL_MS)
                    began = time.monotonic()
                    patience = min(_PREMATURE_MS, self._patience_ms())
                    local, _ = self._wait(one, 0, patience)
                    took.append(time.monotonic() - began if local else math.inf)
                    if not local:
                        break
                one.delete(self._own_key)
            return tuple(took)

        return self._inquire("WAITAOF", ask)

    @property
    def _own_key(self) -> str:
        return self.keys.doctor

    def _patience_ms(self) -> int:
        """How long a wait may take: well within the time-out of the connection."""
        given = self.client().timeout or math.inf
        return int(min(_BARRIER_SECONDS, given / 2) * 1000)

    @staticmethod
    def _wait(one: Any, replicas: int, milliseconds: int) -> Any:
        return one.execute_command("WAITAOF", 1, replicas, milliseconds)

    def _one_connection(self) -> Any:
        client: Any = self._client
        return client.client()

    @property
    def _pool(self) -> Any:
        return self._client.connection_pool

    # --- asking ----------------------------------------------------------------------------------

    def _ask(self, what: str, call: Callable[[], Answer]) -> Answer | Denied:
        try:
            with self._errors():
                return call()
        except StoreUnavailable:
            raise
        except StoreError as error:
            return Denied(what, str(error.facts.get("problem", error)))

    def _inquire(self, what: str, call: Callable[[], Answer]) -> Answer | Denied:
        """Ask what is not essential: a lost connection is no answer either."""
        try:
            return self._ask(what, call)
        except StoreUnavailable as error:
            return Denied(what, str(error.facts["problem"]))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _server(info: Mapping[str, Any]) -> Server:
    compatible = str(info.get("redis_version", "0.0")).split(".")
    return Server(
        name="Valkey" if "valkey_version" in info else "Redis",
        version=str(info.get("valkey_version", info.get("redis_version", "of unknown version"))),
        compatible=(int(compatible[0]), int(compatible[1])),
        role=str(info.get("role", "")),
        loading=bool(info.get("loading") or info.get("async_loading")),
        clustered=bool(info.get("cluster_enabled")),
        aof_enabled=bool(info.get("aof_enabled")),
        last_write=str(info.get("aof_last_write_status", "")),
        last_rewrite=str(info.get("aof_last_bgrewrite_status", "")),
        last_snapshot=str(info.get("rdb_last_bgsave_status", "")),
        policy=str(info.get("maxmemory_policy", "")),
        evicted=int(info.get("evicted_keys", 0)),
        used=int(info.get("used_memory", 0)),
        limit=int(info.get("maxmemory", 0)),
        clients=int(info.get("connected_clients", 0)),
        most_clients=int(info.get("maxclients", 0)),
        replicas=tuple(
            Replica(f"{told['ip']}:{told['port']}", str(told["state"]), int(told["lag"]))
            for name, told in sorted(info.items())
            if name.startswith("slave") and isinstance(told, Mapping)
        ),
    )
