"""Looks at a resource over HTTP."""

import hashlib
import ssl
import string
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from urllib.parse import quote

import httpx

from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.core.errors import InvalidInput, TallystickError

_ABSENT = frozenset({404, 410})


class ResourceUnreadable(TallystickError):
    """The resource {url} could not be read ({problem}), which proves neither that the effect is
    there nor that it is not. Check the service and the worker's way to it, then look again."""


class HttpResource:
    """One resource, asked for anew at every call: `HttpResource("https://host", "/things/{id}")`.

    `service` is the base URL, or an `httpx.Client` with a `base_url` when the service needs more
    (credentials, certificates, a proxy); make such a client in the process that uses it, because
    its open connections do not survive a fork. `path` begins with `/`; its `{names}` are filled in
    by `read`, percent-encoded, so that a value can never become another path or query.

    `timeout` is in seconds and holds for each step and for the whole reading; `max_bytes` is the
    size of the largest body that is accepted.

    Raises `InvalidInput` for a base URL or path that cannot be used.
    """

    def __init__(
        self,
        service: httpx.Client | str,
        path: str,
        *,
        timeout: float = 5.0,
        max_bytes: int = canonical.MAX_BYTES,
    ) -> None:
        self._service = service
        self._base = _base(service)
        self._path = path
        self._names = _names(path)
        self._timeout = timeout
        self._max_bytes = max_bytes

    def read(self, /, **values: str | int) -> dict[str, Json] | None:
        """`{"status": int, "etag": text, "body": …}`, or None for 404 and 410, which are answers.

        `values` fill the `{names}` of the path, all of them and no others. `etag` is there only if
        the service sends one. `body` is the parsed value if the content type is JSON (numbers with
        a fraction become strings), else `{"sha256": hex, "size": bytes}`.

        Raises `ResourceUnreadable` for everything that proves nothing: no connection, a time-out,
        a redirect (none is followed: it may lead to another host, or to a login page that answers
        200), any other status outside the 200s, a body that is too large or not the JSON that it
        claims to be. Raises `InvalidInput` for wrong values.
        """
        path = self._filled(values)
        shown = _shown(self._base).rstrip("/") + path.partition("?")[0]
        try:
            with self._client() as client:
                try:
                    return self._get(client, path, shown)
                except httpx.RemoteProtocolError:
                    # A kept-alive connection of a client that was passed in may be closed by the
                    # service at any time; reading again is safe, and is done on a new one.
                    return self._get(client, path, shown)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ResourceUnreadable(url=shown, problem=_cause(error)) from None
        except InvalidInput as error:
            problem = f"its {error.facts['field']} cannot be used: {error.facts['problem']}"
            raise ResourceUnreadable(url=shown, problem=problem) from None

    def _client(self) -> AbstractContextManager[httpx.Client]:
        # A client of our own lives for one reading, so that no connection can reach a forked child
        # or be a stale one that fails although the service is well.
        if isinstance(self._service, httpx.Client):
            return nullcontext(self._service)
        return httpx.Client(base_url=self._base, verify=_tls())

    def _get(self, client: httpx.Client, path: str, shown: str) -> dict[str, Json] | None:
        # Without compression the digest is of the resource itself, and no small answer unpacks
        # into a huge one.
        request = client.build_request(
            "GET", path, headers={"Accept-Encoding": "identity"}, timeout=self._timeout
        )
        deadline = time.monotonic() + self._timeout
        response = client.send(request, stream=True, follow_redirects=False)
        try:
            if response.status_code in _ABSENT:
                return None
            if not response.is_success:
                raise ResourceUnreadable(url=shown, problem=_refusal(response))
            body = self._body(response, shown, deadline)
        finally:
            response.close()
        state: dict[str, Json] = {"status": response.status_code, "body": body}
        if etag := response.headers.get("etag"):
            state["etag"] = canonical.text(etag, field="etag")
        return state

    def _body(self, response: httpx.Response, shown: str, deadline: float) -> Json:
        data = bytearray()
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > self._max_bytes:
                problem = f"its body is larger than {self._max_bytes} bytes"
                raise ResourceUnreadable(url=shown, problem=problem)
            if time.monotonic() > deadline:
                problem = f"its body took longer than {self._timeout:g} s"
                raise ResourceUnreadable(url=shown, problem=problem)
        if not _is_json(response.headers.get("content-type", "")):
            return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        return canonical.normalise(canonical.loads(bytes(data), field="body"), field="body")

    def _filled(self, values: Mapping[str, str | int]) -> str:
        if values.keys() != self._names:
            raise InvalidInput(
                field="path",
                problem=f"{self._path} was given {', '.join(sorted(values)) or 'no values'}",
                remedy=f"It needs: {', '.join(sorted(self._names)) or 'no values'}.",
            )
        for name, value in values.items():
            if str(value) in ("", ".", ".."):
                raise InvalidInput(
                    field=name,
                    problem=f"{value!r} would change the path",
                    remedy="Pass the name of one resource.",
                )
        texts = {name: canonical.text(str(value), field=name) for name, value in values.items()}
        return self._path.format(**{name: quote(text, safe="") for name, text in texts.items()})


@cache
def _tls() -> ssl.SSLContext:
    # Reading the certificate store takes some 20 ms, more than the whole look at a near service.
    return httpx.create_ssl_context()


def _base(service: httpx.Client | str) -> httpx.URL:
    try:
        url = service.base_url if isinstance(service, httpx.Client) else httpx.URL(service)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidInput(
            field="service",
            problem="it has no base URL that begins with http:// or https:// and names a host",
            remedy='Pass "https://host/base", or httpx.Client(base_url="https://host/base").',
        )
    return url


def _names(path: str) -> set[str]:
    try:
        parts = list(string.Formatter().parse(path))
    except ValueError:  # a brace without its fellow
        parts = [("", path, "", None)]
    fields = [(name, spec, as_) for _, name, spec, as_ in parts if name is not None]
    plain = all(name.isidentifier() and not spec and not as_ for name, spec, as_ in fields)
    if not plain or not path.startswith("/") or path.startswith("//"):
        raise InvalidInput(
            field="path",
            problem=f"{path!r} is not a path",
            remedy='Write it like "/invoices/{number}", with plain names in braces.',
        )
    return {name for name, _, _ in fields}


def _shown(url: httpx.URL) -> str:
    # Neither the user part nor the query: both are where credentials travel.
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def _cause(error: Exception) -> str:
    # The text of a status error repeats the whole URL, credentials included.
    if isinstance(error, httpx.HTTPStatusError):
        return _refusal(error.response)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _refusal(response: httpx.Response) -> str:
    status = f"it answered {response.status_code} {response.reason_phrase}".rstrip()
    if response.next_request is None:
        return status
    return f"{status} and points to {_shown(response.next_request.url)}; it was not followed"


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json") or kind.endswith("+json")
