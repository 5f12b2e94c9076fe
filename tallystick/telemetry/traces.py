"""Spans, where OpenTelemetry is in use; where it is not, nothing, and at no cost.

One trace goes with an action from its proposal to its end. Its W3C `traceparent` is kept in the
first line of the journal, beside what is approved and not in it, and every later span, in whatever
process, is its child. A span is decoration: a killed process loses its own, the record does not.

A process in which nobody has imported `opentelemetry.trace` cannot have a tracer, so we look for
the module instead of importing it. `set_up` imports it, for processes of our own.
"""

import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span

log = logging.getLogger("tallystick.telemetry")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_FLUSH_SECONDS = 2.0
"""How long an end may wait for a collector that does not answer."""

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
"""https://www.w3.org/TR/trace-context/#traceparent-header, version 00."""

_carried: ContextVar[str] = ContextVar("tallystick_traceparent", default="")
"""The trace that this process carries on, also where no OpenTelemetry is installed."""

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class Noted:
    """A span under way; without OpenTelemetry it forgets what it is told."""

    def __init__(self, span: "Span | None" = None) -> None:
        self._span = span

    def note(self, **facts: str | int) -> None:
        """Attributes that are known only later; each is `tallystick.<name>`."""
        if self._span is not None:
            self._span.set_attributes(_attributes(facts))


@contextlib.contextmanager
def span(name: str, *, parent: str = "", **facts: str | int) -> Iterator[Noted]:
    """A span `tallystick.<name>`, current while it lasts.

    `parent` is the traceparent of the action, whose trace it joins; a span that the caller is in
    is then linked, unless it belongs to the same trace. Without `parent` it is a child of the
    caller's, or begins a trace. What is raised marks it by its kind, never by its words.
    """
    carried = _carried.set(parent if _TRACEPARENT.fullmatch(parent) else _carried.get())
    try:
        with _started(f"tallystick.{name}", parent, facts) as noted:
            yield noted
    finally:
        _carried.reset(carried)


def spanned(name: str) -> Callable[[Callable[Given, Answer]], Callable[Given, Answer]]:
    """Have each call of a function be a span, within the one that its caller is in."""

    def decorate(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
        @wraps(function)
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
            with span(name):
                return function(*args, **kwargs)

        return call

    return decorate


def happened(name: str, **facts: str | int) -> None:
    """Tell the span that is current of an event, and set the same facts on it."""
    if api := _api():
        current = api.get_current_span()
        current.set_attributes(_attributes(facts))
        current.add_event(f"tallystick.{name}", _attributes(facts))


def traceparent() -> str:
    """The W3C traceparent of the span that is current, or of the trace that is carried on; empty
    if there is none."""
    if api := _api():
        found = api.get_current_span().get_span_context()
        if found.is_valid:
            return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags & 0xFF:02x}"
    return _carried.get()


def trace_id(parent: str | None = None) -> str:
    """The trace id of a traceparent, of the current one unless given; empty if there is none."""
    found = _TRACEPARENT.fullmatch(traceparent() if parent is None else parent)
    return found[1] if found else ""


def _api() -> Any:
    return sys.modules.get("opentelemetry.trace")


def _attributes(facts: dict[str, str | int]) -> dict[str, str | int]:
    return {f"tallystick.{name}": value for name, value in facts.items()}


@contextlib.contextmanager
def _started(name: str, parent: str, facts: dict[str, str | int]) -> Iterator[Noted]:
    api = _api()
    if api is None:
        yield Noted()
        return
    context, links = _parentage(api, parent)
    tracer = api.get_tracer("tallystick")
    with tracer.start_as_current_span(
        name,
        context=context,
        links=links,
        attributes=_attributes(facts),
        record_exception=False,
        set_status_on_exception=False,
    ) as started:
        try:
            yield Noted(started)
        except BaseException as error:
            started.set_attribute("error.type", type(error).__qualname__)
            started.set_status(api.StatusCode.ERROR)
            raise


def _parentage(api: Any, parent: str) -> "tuple[Context | None, list[Link]]":
    """The context to start a span in (None: the caller's), and what to link."""
    found = _TRACEPARENT.fullmatch(parent)
    if found is None:
        return None, []
    trace, span_id, flags = (int(part, 16) for part in found.groups())
    here = api.get_current_span().get_span_context()
    if here.is_valid and here.trace_id == trace:
        return None, []
    remote = api.SpanContext(trace, span_id, is_remote=True, trace_flags=api.TraceFlags(flags))
    context = api.set_span_in_context(api.NonRecordingSpan(remote))
    return context, [api.Link(here)] if here.is_valid else []


# --- processes of our own ------------------------------------------------------------------------


def set_up(service: str) -> None:
    """Send this process's spans where the standard OTEL_* variables say, if they name a collector;
    call it after a fork, never before. A provider that the host has set up is left alone."""
    if not _wanted():
        return
    if _named(_PROTOCOLS) not in {"", "http/protobuf"}:
        log.warning(
            "no spans are sent: tallystick[otel] speaks OTLP over HTTP. Set"
            " OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, and the collector's HTTP port (4318)"
        )
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning(
            "no spans are sent: OTEL_EXPORTER_OTLP_ENDPOINT is set, and OpenTelemetry is not"
            " installed. Install it with: pip install 'tallystick[otel]'"
        )
        return
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", service)})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def flush() -> None:
    """Send what has not been sent, before an end that runs no exit handlers; it waits two seconds
    at most for a collector that does not answer."""
    api = _api()
    send = getattr(api and api.get_tracer_provider(), "force_flush", None)
    if send is not None:
        sending = threading.Thread(target=send, name="tallystick-flush", daemon=True)
        sending.start()
        sending.join(_FLUSH_SECONDS)


def _wanted() -> bool:
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    otlp = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip() == "otlp"
    return bool(_named(_ENDPOINTS)) and otlp and not off


def _named(variables: tuple[str, ...]) -> str:
    """The first of these variables that is set."""
    return next((value for name in variables if (value := os.environ.get(name, "").strip())), "")
