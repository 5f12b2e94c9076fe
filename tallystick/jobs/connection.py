"""How to reach Redis: clients for every kind of URL, and its errors in our words."""

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LinkError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as LinkTimeout
from redis.retry import Retry
from redis.sentinel import Sentinel

from tallystick.core.errors import (
    SettingsError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
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


def connect(url: str, *, timeout: float, retries: bool, decode: bool) -> Client:
    """A client for a `redis://`, `rediss://`, `unix://` or `redis+sentinel://` URL.

    The protocol's own client has `retries` off: the default re-sends up to ten times and doubles
    commands that are not idempotent (measured with redis-py 8.1: INCR and XADD).

    Nothing is sent yet. Raises `SettingsError` for a URL that is none of these.
    """
    if problem := _malformed(url):
        raise _unusable(problem)
    options: dict[str, Any] = {
        "decode_responses": decode,
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, 2),
    }
    if not retries:
        options["retry"] = Retry(NoBackoff(), 0)
    try:
        if url.startswith("redis+sentinel://"):
            return _sentinel(url, options)
        client = redis.Redis.from_url(url, **options)
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
        return client
    except (TypeError, RedisError) as error:  # an option, or a value of one, that is not taken
        raise _unusable(_one_line(error)) from None
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
        raise StoreUnavailable(url=url, problem=_one_line(error)) from error
    except RedisError as error:
        problem = _one_line(error)
        if "READONLY" in problem or "read only replica" in problem:
            raise StoreReadOnly(url=url) from error
        if "OOM" in problem or "maxmemory" in problem:
            raise StoreFull(url=url) from error
        raise StoreRefused(url=url, problem=problem) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
