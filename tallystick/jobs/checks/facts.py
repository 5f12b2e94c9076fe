"""What the doctor knows when it judges: frozen values, gathered once, so that checks are pure.

Whatever could not be read is `Denied`, and a check that needs it says so instead of guessing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Fact = TypeVar("Fact")

OPTIONS = (
    "aof-load-truncated",
    "appendfsync",
    "bind",
    "dir",
    "enable-debug-command",
    "enable-module-command",
    "enable-protected-configs",
    "min-replicas-max-lag",
    "min-replicas-to-write",
    "no-appendfsync-on-rewrite",
    "port",
    "protected-mode",
    "stop-writes-on-bgsave-error",
    "tls-auth-clients",
    "tls-port",
)
"""The options of the server that checks ask for."""

WAITAOF_SINCE = (7, 2)
"""The first version of Redis that can wait until a write is on disk."""


@dataclass(frozen=True, slots=True)
class Denied:
    """A question that the server, or this machine, did not answer."""

    what: str
    """What would have to be allowed: a command, or "read FILE"."""
    why: str


class Unread(Exception):
    """A check needs a fact that could not be read."""

    def __init__(self, denied: Denied) -> None:
        super().__init__(f"{denied.what}: {denied.why}")
        self.what = denied.what


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica as its primary sees it."""

    address: str
    state: str
    lag: int
    """Seconds since its last acknowledgement; says nothing of how far behind its data is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What INFO says."""

    name: str
    version: str
    compatible: tuple[int, int]
    """The version of Redis whose commands it has."""
    role: str
    """Empty, as any text here, if INFO does not tell."""
    loading: bool
    clustered: bool
    aof_enabled: bool
    last_write: str
    last_rewrite: str
    last_snapshot: str
    policy: str
    evicted: int
    used: int
    limit: int
    """Bytes; 0 for no limit."""
    clients: int
    most_clients: int
    replicas: tuple[Replica, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the clocks, at one instant; seconds."""

    redis: float
    local: float
    steady: float
    """A clock that nobody can set and that goes on while the machine sleeps."""
    trip: float
    """How long the answer took; the instant is known to half of it."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The latest look, and an earlier one if there was any."""

    now: Look
    before: Look | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """The parts of the lease inequality, in seconds."""

    lease: float
    effect: float
    verify: float
    margin: float
    trip: float
    """A round trip to Redis: the 99th of 100 for the doctor, the median for a worker's guard."""


@dataclass(frozen=True, slots=True)
class Client:
    """How the protocol's own client behaves."""

    retries: int
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the server is reached."""

    url: str
    """Without credentials."""
    host: str
    """Empty for a unix socket."""
    encrypted: bool
    embedded: bool
    namespace: str

    @property
    def remote(self) -> bool:
        """Whether it is reached over a network."""
        return bool(self.host) and not is_loopback(self.host)


@dataclass(frozen=True, slots=True)
class Sample:
    """What a bounded SCAN saw."""

    seen: int
    ours: int
    expiring: tuple[str, ...] = ()
    """Keys of ours that would vanish, and must not."""
    foreign: tuple[str, ...] = ()
    """Some of the keys that are neither Tallystick's nor RQ's."""
    secrets: tuple[str, ...] = ()
    """Keys whose value holds the private key that this machine signs with."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """What WAITAOF answered on the connection that had just written."""

    wanted: int
    local: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Replication:
    """Who could become the primary."""

    watched: bool
    """Whether Sentinel decides."""
    electable: int
    """How many replicas could be promoted: all, or with Sentinel those whose priority is not 0."""
    barrier: Barrier | Denied | None = None
    """None if there is nobody to wait for."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who we are to the server, and what we could do to it."""

    user: str
    dangerous: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outbox:
    """Alerts that no channel has taken."""

    waiting: int
    oldest: float | None
    """Seconds that the oldest has waited; None if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFolder:
    """The approval keys of this machine, without the private key itself."""

    path: str
    chosen: bool
    """Whether TALLYSTICK_KEY_DIR names it; else the keys are made at the first use."""
    mode: int | None = None
    """Permission bits of the private key's file; None if there is none."""
    folder_mode: int = 0o700
    public: str = ""
    """The public half of the private key, in hex."""
    private_problem: str = ""
    """Why the private key cannot be used."""
    trusted: Mapping[str, str] | None = None
    """Public keys in hex by key id; None if there is no file."""
    trusted_problem: str = ""
    """Why trusted.json cannot be used."""


_NOT_ASKED = Denied("ask", "nobody did")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that checks may ask for. A worker's guard gathers the first part only."""

    unreachable: str = ""
    """Why the server does not answer; empty if it does."""
    timing: Timing
    server: Server | Denied = _NOT_ASKED
    config: Mapping[str, str] | Denied = _NOT_ASKED
    clock: Clock | Denied = _NOT_ASKED
    unloadable: tuple[str, ...] | Denied = _NOT_ASKED
    """What the user `default` may not run, as whom the server loads its append-only file."""

    endpoint: Endpoint | Denied = _NOT_ASKED
    client: Client | Denied = _NOT_ASKED
    sample: Sample | Denied = _NOT_ASKED
    waits_for: int = 0
    """How many replicas Tallystick waits for, by its settings."""
    replication: Replication | Denied = _NOT_ASKED
    premature: tuple[float, ...] | Denied = ()
    """Under everysec: seconds after which WAITAOF confirmed each of some writes in a row."""
    access: Access | Denied = _NOT_ASKED
    passwordless: bool | Denied = _NOT_ASKED
    """Whether whoever reaches the server gets in."""
    outbox: Outbox | Denied = _NOT_ASKED
    keys: KeyFolder | Denied = _NOT_ASKED
    rq_version: str = ""
    filesystem: str = ""
    """The kind of file system under the embedded server's data; empty if not known."""

    def option(self, name: str) -> str:
        """An option as CONFIG GET names it. Raises `Unread`."""
        found = known(self.config).get(name)
        if found is None:
            raise Unread(Denied(f"CONFIG GET {name}", "this server does not know the option"))
        return found


def heard(text: str, what: str) -> str:
    """A text of INFO, if it told any. Raises `Unread`."""
    if not text:
        raise Unread(Denied("INFO", f"it does not tell {what}"))
    return text


def is_loopback(host: str) -> bool:
    """Whether this name or address is the host itself."""
    return host.startswith("127.") or host in {"::1", "localhost"}


def known(fact: Fact | Denied) -> Fact:
    """The fact, if it could be read. Raises `Unread`."""
    if isinstance(fact, Denied):
        raise Unread(fact)
    return fact
