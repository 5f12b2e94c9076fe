"""RQ: the only module that imports it. A job is a wake-up that carries an action id, no more.

RQ's own classes run whatever function a job in Redis names, pickled or not. The classes here run
one function, read JSON only, ignore callbacks and webhooks, and take one queue (with several, RQ
pops without a trace and loses jobs). The record is the truth: a lost or doubled wake-up is
harmless, so nothing of RQ's retries, registries or results is used.
"""

import logging
import os
from collections.abc import Callable
from typing import Any

from rq import Queue as RqQueue
from rq.exceptions import DeserializationError, DuplicateJobError, NoSuchJobError, StopRequested
from rq.job import Job as RqJob
from rq.serializers import JSONSerializer
from rq.timeouts import BaseDeathPenalty
from rq.utils import import_attribute
from rq.worker import SimpleWorker
from rq.worker.base import WorkerStatus

from tallystick.core.errors import StoreError, TallystickError
from tallystick.jobs.connection import Client, LinkDown, connect, safe_url, translated_errors
from tallystick.jobs.settings import Settings

log = logging.getLogger("tallystick.transport")

ENTRY_POINT = "tallystick.jobs.entry.perform"
"""The one function that a job may name. It lies in Redis, so it never changes."""

_JOB_TTL_SECONDS = 60
_FAILED_TTL_SECONDS = 3600


class ForeignJob(TallystickError):
    """The job {id} asks for {function!r}. This worker runs Tallystick's entry point and nothing
    else; somebody wrote to Redis who should not."""


def _log_refusal(refusal: str) -> None:
    log.error("security: %s", refusal)


_perform: Callable[[str], Any] | None = None
_refused: Callable[[str], None] = _log_refusal


def _one_id(args: Any) -> bool:
    """Whether these are the arguments of a wake-up: an action id and nothing else."""
    return bool(args) and len(args) == 1 and isinstance(args[0], str) and len(args[0]) == 16


def perform_with(run: Callable[[str], Any], *, refused: Callable[[str], None]) -> None:
    """Set up this process: `run(action_id)` for each wake-up; `refused(why)` is told of every job
    that is anything else, after it was logged."""
    global _perform, _refused

    def told(why: str) -> None:
        _log_refusal(why)
        refused(why)

    _perform, _refused = run, told


class ActionJob(RqJob):
    """A job that can only be a wake-up, whatever its hash in Redis says."""

    _told = False

    def __init__(self, id: str | None = None, connection: Any = None, serializer: Any = None):
        super().__init__(id, connection=connection, serializer=JSONSerializer)

    def restore(self, raw_data: Any) -> Any:
        """Take over what is stored. RQ ends a worker that meets a field which it cannot read, and
        passes over a job that does not exist: so this one does not."""
        try:
            super().restore(raw_data)
        except NoSuchJobError:
            raise
        except Exception as error:  # what lies in Redis can be anything
            raise NoSuchJobError(str(self._refusal(_unreadable(error)))) from error
        self._success_callback_name = self._failure_callback_name = None
        self._stopped_callback_name = None
        self.webhooks = []
        self.retries_left = self.repeats_left = None

    def _deserialize_data(self) -> None:
        """Read name and arguments; RQ does so for its log, before it asks for the function. Raises
        what RQ knows to handle."""
        try:
            super()._deserialize_data()  # type: ignore[no-untyped-call]
        except DeserializationError as error:
            self._refusal(_unreadable(error.__cause__))
            raise

    @property
    def func(self) -> Callable[..., Any]:
        name, instance, args, kwargs = self.func_name, self.instance, self.args, self.kwargs
        if name != ENTRY_POINT or instance is not None or kwargs or not _one_id(args):
            raise self._refusal(str(name))
        return _perform or import_attribute(ENTRY_POINT)

    def _refusal(self, function: str) -> ForeignJob:
        refusal = ForeignJob(id=self.id, function=function[:200])
        if not self._told:
            self._told = True
            _refused(str(refusal))
        return refusal


def _unreadable(error: BaseException | None) -> str:
    return f"unreadable ({type(error).__name__})"


class ActionQueue(RqQueue):
    """A queue of wake-ups."""

    job_class = ActionJob

    def __init__(self, name: str, connection: Any, **options: Any):
        options |= {"serializer": JSONSerializer, "job_class": ActionJob}
        super().__init__(name, connection=connection, **options)


class _NoAlarm(BaseDeathPenalty):
    """Our parent kills by the deadline; an alarm inside an effect would only blur its outcome."""

    def setup_death_penalty(self) -> None: ...

    def cancel_death_penalty(self) -> None: ...


class ActionWorker(SimpleWorker):
    """Takes wake-ups from one queue and runs them in this process, one after the other."""

    queue_class: type[RqQueue] = ActionQueue
    job_class: type[RqJob] = ActionJob
    death_penalty_class = _NoAlarm
    max_connection_wait_time = 2.0
    """Seconds between two tries to reach Redis; RQ goes up to a minute, in which nothing runs."""

    def __init__(self, queues: Any, *args: Any, **options: Any):
        given = queues if isinstance(queues, list | tuple) else [queues]
        queues = [
            queue
            if isinstance(queue, str | ActionQueue)
            else ActionQueue(queue.name, queue.connection)
            for queue in given
        ]
        if len(queues) != 1:
            raise ValueError("a Tallystick worker takes exactly one queue: RQ loses jobs with more")
        options |= {
            "serializer": JSONSerializer,
            "job_class": ActionJob,
            "queue_class": ActionQueue,
        }
        super().__init__(queues, *args, **options)

    def _shutdown(self) -> None:
        """Note that a stop was asked for. RQ raises from the signal handler where it is idle, and
        whatever broad `except` that lands in swallows the stop."""
        self._stop_requested = True

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Called between any two jobs and any two blocking pops: where a stop is heeded."""
        if self._stop_requested and pipeline is None and self.get_state() != WorkerStatus.BUSY:
            raise StopRequested
        super().heartbeat(timeout, pipeline)

    def subscribe(self) -> None:
        """No commands by pub/sub: any Redis client could stop the worker with them."""

    def unsubscribe(self) -> None: ...

    def run_maintenance_tasks(self) -> None:
        """RQ's clean-up only removes garbage here; a job hash that breaks it stops nothing."""
        try:
            super().run_maintenance_tasks()  # type: ignore[no-untyped-call]
        except Exception:
            log.warning("RQ's maintenance failed; nothing depends on it", exc_info=True)

    def handle_exception(self, job: RqJob, *exc_info: Any) -> None:
        """RQ's own line would quote whatever was raised, and an action's words may be secret."""
        if not isinstance(exc_info[1], ForeignJob):  # told where it was refused
            log.error("wake-up %s failed; the recoverer sends another", job.id, exc_info=exc_info)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of RQ's is not merely that Redis is away: every work-horse would say so at
    each try, and their parent says it once."""
    error = record.exc_info[1] if record.exc_info else None
    return "could not connect to Redis" not in str(record.msg) and not isinstance(error, LinkDown)


class Transport:
    """The queue of one namespace, as a producer and a recoverer use it."""

    def __init__(self, client: Client, namespace: str, *, url: str = "redis") -> None:
        self._url = url
        self._client = client
        self.queue = ActionQueue(namespace, client)

    @classmethod
    def connect(cls, url: str, settings: Settings, *, patient: bool = False) -> "Transport":
        """The transport at this URL; nothing is sent yet. A `patient` one is for a work-horse: it
        tries again for some seconds. Others have better to do, and a lost wake-up is harmless."""
        client = connect(url, timeout=10 if patient else 3, retries=patient, decode=False)
        return cls(client, settings.namespace, url=safe_url(url))

    def wake(self, action_id: str, dispatch: str) -> None:
        """Put a wake-up into the queue. The same dispatch twice is once."""
        with translated_errors(self._url):
            try:
                self.queue.enqueue_call(
                    ENTRY_POINT,
                    args=(action_id,),
                    timeout=_JOB_TTL_SECONDS * 60,
                    result_ttl=_JOB_TTL_SECONDS,
                    failure_ttl=_FAILED_TTL_SECONDS,
                    job_id=f"{action_id}-{dispatch}",
                    description=f"action {action_id}",
                    unique=True,
                )
            except DuplicateJobError:
                log.debug("wake-up %s-%s is there already", action_id, dispatch)

    def wake_soon(self, action_id: str, dispatch: str) -> None:
        """`wake`, where a failure is harmless: the recoverer will do it."""
        try:
            self.wake(action_id, dispatch)
        except StoreError as error:
            log.warning("wake-up of action %s is left to the recoverer: %s", action_id, error)

    def depth(self) -> int:
        """How many wake-ups wait in the queue."""
        with translated_errors(self._url):
            return int(self.queue.count)

    def work(self, *, name: str, burst: bool, max_jobs: int | None) -> None:
        """Take wake-ups in this process until told to stop (SIGTERM), the queue is empty (`burst`)
        or `max_jobs` are done. Raises `StoreError` if the store ends it."""
        with translated_errors(self._url):
            worker = ActionWorker(
                [self.queue],
                name=f"{name}-{os.urandom(4).hex()}",
                connection=self._client,
                worker_ttl=16,
                maintenance_interval=600,
                disable_default_exception_handler=True,
            )
            worker.log_result_lifespan = False
            logging.getLogger("rq.worker").addFilter(_is_news)
            worker.work(burst=burst, max_jobs=max_jobs, logging_level="WARNING")

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()
