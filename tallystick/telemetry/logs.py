"""Log lines of one process: JSON for machines, words for people, secrets in neither.

Nothing here runs when it is imported: how a host application logs is its own affair. Our own
processes (worker, exporter) call `configure`, and so may whoever wants the same lines.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from traceback import walk_tb
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from tallystick.core.canonical import spelt_out
from tallystick.core.errors import StoreError
from tallystick.telemetry import traces
from tallystick.telemetry.redaction import redacted, without_secrets

if TYPE_CHECKING:
    from structlog.stdlib import ProcessorFormatter
    from structlog.typing import Processor

    Event = MutableMapping[str, Any]

FORMATS = ("auto", "json", "console")
LEVELS = ("debug", "info", "warning", "error")

_TRANSPORTS = ("httpcore", "httpx", "opentelemetry", "redis", "rq", "urllib3")
"""Libraries below us. At INFO they tell of every request with its URL, so they speak from WARNING
on, and say the same no more than once in a while."""
_REPEATING = tuple(f"{name}." for name in (*_TRANSPORTS, "tallystick.metrics"))
_SAY_AGAIN_SECONDS = 30.0

_FIRST = (
    "timestamp",
    "level",
    "logger",
    "event",
    "action_id",
    "action_type",
    "from_state",
    "state",
    "attempt",
    "fencing_token",
    "worker",
    "trace_id",
)
_LEFT_BY_OTHERS = ("message", "asctime", "stack_info")
"""What the formatter of another handler leaves in a record; and the source text of a stack."""
_ALWAYS = frozenset({"timestamp", "level", "logger", "event"})
_MOST_CAUSES, _MOST_FRAMES = 5, 30


def configure(format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Send every log line of this process, ours and those of libraries, through one renderer.

    `format` is one of `FORMATS`; auto is words on a terminal and JSON elsewhere. `level` is one of
    `LEVELS`. `stream` is standard error unless given. What was configured before is replaced.
    """
    target: TextIO = sys.stderr if stream is None else stream
    words = format == "console" or (format == "auto" and target.isatty())
    handler = logging.StreamHandler(target)
    handler.setFormatter(formatter(words=words, colours=words and target.isatty()))
    handler.addFilter(_SayOnce())
    threshold = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=threshold, handlers=[handler], force=True)
    for name in _TRANSPORTS:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))
    logging.captureWarnings(True)


def formatter(*, words: bool, colours: bool = False) -> "ProcessorFormatter":
    """The one renderer: JSON on one line, or words for people."""
    import structlog

    # Sorting would separate what belongs together; the order of the fields is ours.
    render: Processor = (
        structlog.dev.ConsoleRenderer(colors=colours, sort_keys=False)
        if words
        else structlog.processors.JSONRenderer()
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _step(_add_trace),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _step(_tell_exception),
            _step(_redact),
            *([_step(_for_people)] if words else []),
            render,
        ],
    )


class _SayOnce(logging.Filter):
    """Lets what repeats itself through once in a while: transports, and an exporter that is asked
    every few seconds for what it cannot read."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, int, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not f"{record.name}.".startswith(_REPEATING):
            return True
        said, now = (record.name, record.levelno, str(record.msg)), time.monotonic()
        if now - self._said.get(said, -_SAY_AGAIN_SECONDS) < _SAY_AGAIN_SECONDS:
            return False
        self._said[said] = now
        return True


# --- what becomes of a line before it is rendered ------------------------------------------------


def _step(change: "Callable[[Event], Event]") -> "Processor":
    """A function of a line's fields as structlog wants it."""
    return lambda logger, method, event: change(event)


def _add_trace(event: "Event") -> "Event":
    if trace := traces.trace_id():
        event.setdefault("trace_id", trace)
    return event


def _tell_exception(event: "Event") -> "Event":
    for name in _LEFT_BY_OTHERS:
        event.pop(name, None)
    given = event.pop("exc_info", None)
    error = given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        event["exception"] = "\n".join(described(error))
    return event


def _redact(event: "Event") -> "Event":
    first = [name for name in _FIRST if name in event]
    names = dict.fromkeys([*first, *event])
    return {name: redacted(event[name], name) for name in names}


def _for_people(event: "Event") -> "Event":
    """Without the fields that the message says already; and no line of a terminal is forged or
    hidden by what somebody named something."""
    message = str(event["event"])
    return {
        name: spelt_out(value, line_breaks=name == "exception") if isinstance(value, str) else value
        for name, value in event.items()
        if name in _ALWAYS or not (isinstance(value, str) and value in message)
    }


def described(error: BaseException) -> Iterator[str]:
    """An exception and its causes: kinds and places. The words only of a `StoreError`, which are
    ours; others may quote parameters, and are in the journal for those who may see them."""
    for depth, one in enumerate(_chain(error)):
        if depth:
            yield "caused by"
        kind = type(one)
        words = f": {without_secrets(str(one))}" if isinstance(one, StoreError) else ""
        yield f"{kind.__module__}.{kind.__qualname__}{words}"
        yield from _places(one.__traceback__)


def _chain(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if found is None:
            return
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _places(trace: TracebackType | None) -> Iterator[str]:
    """Where it was raised, innermost last; no source text, which may hold a secret too."""
    frames = [
        f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_qualname}'
        for frame, line in walk_tb(trace)
    ]
    yield from frames[-_MOST_FRAMES:]
