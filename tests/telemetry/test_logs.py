"""Log lines: one renderer for all of a process, JSON or words, and nothing secret in either."""

import io
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tallystick.core.errors import StoreUnavailable
from tallystick.telemetry import logs

SECRET = "hunter2-Planted"


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """What `configure` sets is of the whole process; put it back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in logs._TRANSPORTS}
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def configured(format: str = "json", level: str = "info", **given: Any) -> io.StringIO:
    stream: io.StringIO = given.pop("stream", None) or io.StringIO()
    logs.configure(format, level, stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


log = logging.getLogger("tallystick.somewhere")

# --- forms ---------------------------------------------------------------------------------------


def test_a_line_is_one_json_object_with_its_fields() -> None:
    stream = configured()
    log.info("work-horse %d started", 7, extra={"action_id": "a", "worker": "host:7"})
    [line] = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "tallystick.somewhere",
        "event": "work-horse 7 started",
        "action_id": "a",
        "worker": "host:7",
    }


def test_the_fields_that_are_searched_for_come_first() -> None:
    stream = configured()
    log.info("x", extra={"odd": 1, "worker": "w", "state": "running", "action_id": "a"})
    [line] = lines(stream)
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    assert list(line)[4:] == ["action_id", "state", "worker", "odd"]


def test_a_terminal_gets_words_and_anything_else_json() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    configured("auto", stream=terminal)
    log.info("hello", extra={"worker": "host:7"})
    configured("auto", stream=pipe)
    log.info("hello")
    assert "hello" in terminal.getvalue()
    assert "worker" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")
    assert lines(pipe)[0]["event"] == "hello"


@pytest.mark.parametrize(("format", "is_json"), [("json", True), ("console", False)])
def test_a_form_that_is_asked_for_is_taken_wherever_it_goes(format: str, is_json: bool) -> None:
    for stream in (Terminal(), io.StringIO()):
        configured(format, stream=stream)
        log.info("hello")
        assert stream.getvalue().startswith("{") is is_json


def test_a_pipe_gets_no_colours() -> None:
    stream = configured("console")
    log.error("hello", extra={"worker": "host:7"})
    assert "\x1b" not in stream.getvalue()


def test_words_do_not_repeat_what_the_message_says() -> None:
    stream = configured("console")
    said = {"action_id": "420d76024f206e24", "state": "running", "attempt": 1}
    log.info("action 420d76024f206e24: approved -> running", extra=said)
    assert stream.getvalue().count("420d76024f206e24") == 1
    assert "state=" not in stream.getvalue()
    assert "attempt=1" in stream.getvalue()


def test_nobody_forges_a_line_or_moves_the_cursor() -> None:
    evil = "a\n2026-01-01 [info] forged\x1b[2J\u202e\r"
    for format in ("json", "console"):
        stream = configured(format)
        log.warning("name %s", evil, extra={"worker": evil})
        assert len(stream.getvalue().splitlines()) == 1
        assert not {"\x1b", "\u202e", "\r"} & set(stream.getvalue())


def test_a_lone_surrogate_can_be_logged() -> None:
    for format in ("json", "console"):
        stream = configured(format)
        log.info("\ud800")
        assert "ud800" in stream.getvalue()


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_less_than_the_level_is_not_logged(level: str, seen: list[str]) -> None:
    stream = configured(level=level)
    for name in logs.LEVELS:
        getattr(log, name)("said")
    assert [line["level"] for line in lines(stream)] == seen


# --- others' lines -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rq.worker", "redis.client", "opentelemetry.sdk", "bank.actions"])
def test_lines_of_libraries_take_the_same_form(name: str) -> None:
    stream = configured()
    logging.getLogger(name).warning("cannot reach redis://:%s@db", SECRET)
    [line] = lines(stream)
    assert (line["logger"], line["event"]) == (name, "cannot reach redis://db")


def test_warnings_of_python_take_the_same_form() -> None:
    stream = configured()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logs.configure("json", "info", stream)
        warnings.warn(f"password={SECRET}", stacklevel=1)
    [line] = lines(stream)
    assert line["logger"] == "py.warnings"
    assert SECRET not in stream.getvalue()


def test_a_transport_does_not_tell_of_every_request() -> None:
    stream = configured()
    logging.getLogger("httpx").info('HTTP Request: GET https://db/x?account=1 "HTTP/1.1 200 OK"')
    assert stream.getvalue() == ""


@pytest.mark.parametrize("name", ["opentelemetry.exporter", "tallystick.metrics.collector"])
def test_who_repeats_the_same_trouble_is_heard_once(name: str) -> None:
    stream = configured()
    for attempt in range(100):
        logging.getLogger(name).error("no collector, attempt %d", attempt)
        logging.getLogger(name).error("something else")
    assert [line["event"] for line in lines(stream)] == [
        "no collector, attempt 0",
        "something else",
    ]


def test_others_may_repeat_themselves() -> None:
    stream = configured()
    for item in range(3):
        logging.getLogger("bank.actions").info("booked %d", item)
    assert len(lines(stream)) == 3


# --- secrets -------------------------------------------------------------------------------------


def raised(error: BaseException) -> BaseException:
    """The error as somebody catches it: raised in a function, because of another."""
    try:
        try:
            raise OSError(f"first {SECRET}")
        except OSError as cause:
            raise error from cause
    except BaseException as caught:
        return caught


@pytest.mark.parametrize("format", ["json", "console"])
def test_an_exception_is_told_by_kind_and_place_and_not_by_its_words(format: str) -> None:
    stream = configured(format)
    log.error("it failed", exc_info=raised(RuntimeError(f"login with {SECRET} refused")))
    said = stream.getvalue()
    assert SECRET not in said
    assert "builtins.RuntimeError" in said
    assert "builtins.OSError" in said
    assert "in raised" in said
    assert "test_logs.py" in said


def test_the_words_of_a_store_error_are_ours_and_are_told() -> None:
    stream = configured()
    error = StoreUnavailable(url="redis://db", problem=f"password={SECRET}")
    log.error("it failed", exc_info=raised(error))
    assert "Redis at redis://db does not answer" in lines(stream)[0]["exception"]
    assert SECRET not in stream.getvalue()


def test_a_secret_in_a_field_a_message_or_a_nested_value_is_redacted() -> None:
    stream = configured()
    log.warning(
        "Authorization: Bearer %s",
        SECRET,
        extra={"password": SECRET, "headers": {"X-Token": SECRET}, "url": f"redis://:{SECRET}@db"},
    )
    assert SECRET not in stream.getvalue()
    assert lines(stream)[0]["url"] == "redis://db"


def test_an_endless_chain_of_causes_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert list(logs.described(first)).count("caused by") == 4


# --- a library stays a library -------------------------------------------------------------------

IMPORTS = """
import logging, sys
before = (list(logging.root.handlers), logging.root.level)
import tallystick, tallystick.jobs.entry, tallystick.jobs.supervisor, tallystick.testing
for name in tallystick.__all__: getattr(tallystick, name)
assert (list(logging.root.handlers), logging.root.level) == before
touched = [name for name, one in logging.root.manager.loggerDict.items()
           if isinstance(one, logging.Logger) and name.startswith("tallystick")
           and (one.handlers or one.level or not one.propagate)]
assert not touched, touched
assert "structlog" not in sys.modules, "it is slow to import"
"""


def test_importing_configures_nothing_and_does_not_load_structlog() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
