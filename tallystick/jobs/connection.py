"""How to reach Redis: clients for every kind of URL, and its errors in our words."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as LinkError
from redis.exceptions import MasterDownError, NoScriptError, RedisError
from redis.exceptions import TimeoutError as LinkTimeout
from redis.retry import Retry
from redis.sentinel import Sentinel

from tallystick.core.errors import (
    SettingsError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreSuspended,
    StoreUnavailable,
)

Client = redis.Redis

_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel")
_FORMS = (
    "redis://HOST:PORT/DATABASE, rediss://HOST:PORT/DATABASE, unix:///PATH?db=DATABASE and"
    " redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DATABASE, each with USER:PASSWORD@ before the"
    " host or path if need be, where @ : / ? # of a password are percent-encoded"
)

LinkDown = (LinkError, LinkTimeout)
"""The server did not answer; what was sent may or may not have been carried out."""

Unloaded = NoScriptError
"""The server does not know this script yet."""

Refusal = RedisError
"""Whatever a server answers that is no reply."""

_RETRIES = 3

_SUSPENDED = re.compile(r"(?:^|: )(?:MISCONF|NOREPLICAS|BUSY)\b")
"""What a server says that could do it, but not now: its disk, its replicas, a slow script."""


def connect(
    url: str,
    *,
    timeout: float,
    retries: bool,
    decode: bool,
    connected: Callable[[], object] | None = None,
) -> Client:
    """A client for a `redis://`, `rediss://`, `unix://` or `redis+sentinel://` URL. `connected` is
    called for every connection that is made, also where the client makes it silently anew.

    The protocol's own client has `retries` off: redis-py's default re-sends up to ten times and
    doubles commands that are not idempotent (measured with redis-py 8.1: INCR and XADD). With
    `retries` it is three times: on a network that swallows packets each one waits for the whole
    `timeout` (seconds).

    Nothing is sent yet. Raises `SettingsError` for a URL that is none of these.
    """
    if problem := _malformed(url):
        raise _unusable(problem)
    options: dict[str, Any] = {
        "decode_responses": decode,
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, 2),
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.05), _RETRIES if retries else 0),
    }
    if connected:
        options["redis_connect_func"] = _then(connected)
    try:
        if url.startswith("redis+sentinel://"):
            return _sentinel(url, options)
        client = redis.Redis.from_url(url, **options)
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
        return client
    except (TypeError, RedisError) as error:  # an option, or a value of one, that is not taken
        raise _unusable(one_line(error)) from None
    except ValueError:  # whose text would repeat the URL
        raise _unusable("host, port or an option cannot be read") from None


def _malformed(url: str) -> str:
    """What is wrong with a URL that redis-py would take for another one; empty if nothing is."""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in _SCHEMES:
        return f"it begins with none of {', '.join(f'{known}://' for known in _SCHEMES)}"
    place, _, path = rest.partition("?")[0].rpartition("@")[2].partition("/")
    if scheme == "unix":
        return "" if path and not place else "it names no path: there are three slashes"
    if any(char.isspace() or not char.isprintable() for char in place + path):
        return "there is a blank in it"
    database = path.partition("/")[2] if scheme == "redis+sentinel" else path
    if database.strip("/") and not database.strip("/").isdecimal():
        return "its database is no number"
    if scheme == "redis+sentinel" and not all(place.split(",")):
        return "it names no Sentinel, or an empty one"
    return ""


def _unusable(problem: str) -> SettingsError:
    told = f"{problem}. Understood are {_FORMS}"
    return SettingsError(variable="TALLYSTICK_REDIS_URL", problem=told)


def _then(connected: Callable[[], object]) -> Callable[[Any], None]:
    def greet(connection: Any) -> None:
        connection.on_connect()
        connected()

    return greet


def _sentinel(url: str, options: dict[str, Any]) -> Client:
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    nodes = [_node(host) for host in hosts.split(",")]
    user, _, password = login.partition(":")
    secret: dict[str, Any] = {"password": unquote(password)} if password else {}
    secret |= {"username": unquote(user)} if user else {}
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        nodes, sentinel_kwargs=options | secret, **options, **secret
    )
    return sentinel.master_for(service or "mymaster", db=int(db or 0))  # type: ignore[no-untyped-call,no-any-return]


def _node(text: str) -> tuple[str, int]:
    """`host`, `host:port` or `[IPv6]:port`."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, "26379"
    return host.strip("[]"), int(port)


def safe_url(url: str) -> str:
    """The URL without its credentials and options, for errors and logs."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    return scheme + mark + rest.rpartition("@")[2].partition("?")[0]


@contextlib.contextmanager
def translated_errors(url: str) -> Iterator[None]:
    """Raise the `StoreError` that fits whatever the client raises inside."""
    try:
        yield
    except LinkDown as error:
        raise StoreUnavailable(url=url, problem=one_line(error)) from error
    except RedisError as error:
        problem = one_line(error)
        replica = "READONLY" in problem or "read only replica" in problem
        if replica or isinstance(error, MasterDownError):
            raise StoreReadOnly(url=url) from error
        if "OOM" in problem or "maxmemory" in problem:
            raise StoreFull(url=url) from error
        if _SUSPENDED.search(problem) or isinstance(error, Unloaded):
            raise StoreSuspended(url=url, problem=problem) from error
        raise StoreRefused(url=url, problem=problem) from error


def one_line(error: Exception) -> str:
    """What the client says, fit for an error's message."""
    return " ".join(str(error).split())[:300] or type(error).__name__
