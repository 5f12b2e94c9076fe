"""RQ as transport: one entry point, nothing else, and lost or doubled wake-ups are harmless."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rq import Queue
from rq.job import Job
from rq.serializers import JSONSerializer

from tallystick.jobs.connection import connect
from tallystick.jobs.transport import ActionQueue, ActionWorker
from tests.server import actions
from tests.server.conftest import Server, Site, eventually

pytestmark = pytest.mark.server


def forge(server: Server, function: str, *args: object, **fields: str | bytes) -> str:
    """Put a job straight into Redis, as anybody who can write there could."""
    client = connect(server.url, timeout=5, retries=False, decode=False)
    job = Job.create(function, args=args, connection=client, serializer=JSONSerializer)
    job.origin = "tallystick"
    job.save()
    for name, value in fields.items():
        client.hset(job.key, name, value)
    client.sadd("rq:queues", "rq:queue:tallystick")
    client.rpush("rq:queue:tallystick", job.id)
    client.close()
    return str(job.id)


def refusals(site: Site) -> int:
    return site.tally.store.snapshot().counters.get("security_events|foreign_job", 0)


@pytest.mark.parametrize("function", ["os.system", "builtins.exec", "subprocess.check_call"])
def test_a_job_that_names_another_function_is_refused_and_nothing_runs(
    site: Site, function: str
) -> None:
    proof = site.folder / "owned"
    forge(site.server, function, f"touch {proof}")
    site.worker()
    eventually(lambda: refusals(site) == 1, "the refusal is counted")
    assert "security: The job" in site.log()
    assert function in site.log()
    assert not proof.exists()


def test_a_refused_job_does_not_hold_up_the_next_action(site: Site) -> None:
    forge(site.server, "os.system", "true")
    id = site.approved("item.readable", "next")
    site.worker()
    assert site.at_rest(id) == "committed"


@pytest.mark.parametrize("args", [(), (["a"],), ("x", "y"), ({"id": 1},), ("../../etc",)])
def test_a_wake_up_that_carries_anything_but_one_id_is_refused(
    site: Site, args: tuple[object, ...]
) -> None:
    forge(site.server, "tallystick.jobs.entry.perform", *args)
    site.worker()
    eventually(lambda: refusals(site) == 1, "the refusal is counted")


def test_callbacks_in_a_job_are_not_called(site: Site) -> None:
    proof = site.folder / "owned"
    id = site.approved("item.readable", "callback")
    fields = {"success_callback_name": "os.mkdir", "failure_callback_name": "os.mkdir"}
    forge(site.server, "tallystick.jobs.entry.perform", id, **fields)
    forge(site.server, "os.system", f"touch {proof}", **fields)
    site.worker("--burst").wait(30)
    assert site.at_rest(id) == "committed"
    assert not proof.exists()
    assert "callback" not in site.log()


def test_an_unknown_id_is_passed_over(site: Site) -> None:
    forge(site.server, "tallystick.jobs.entry.perform", "0123456789abcdef")
    id = site.approved("item.readable", "known")
    site.worker()
    assert site.at_rest(id) == "committed"
    assert "does not exist: 0123456789abcdef" in site.log()


def test_ten_wake_ups_of_one_action_are_one_effect(site: Site) -> None:
    id = site.approved("item.readable", "often")
    for _ in range(10):
        forge(site.server, "tallystick.jobs.entry.perform", id)
    site.worker("--processes", "3")
    assert site.at_rest(id) == "committed"
    assert actions.effects("often") == 1


def test_a_lost_wake_up_is_repeated_by_the_recoverer(site: Site) -> None:
    id = site.approved("item.readable", "lost")
    client = connect(site.server.url, timeout=5, retries=False, decode=False)
    client.delete("rq:queue:tallystick")
    client.close()
    site.worker()
    assert site.at_rest(id) == "committed"


@pytest.mark.parametrize(
    "flags",
    [
        ["--serializer", "rq.serializers.JSONSerializer"],
        ["--worker-class", "tallystick.jobs.transport.ActionWorker"],
    ],
    ids=["stock classes", "our worker class"],
)
def test_a_stock_rq_worker_runs_our_jobs(site: Site, flags: list[str]) -> None:
    id = site.approved("item.readable", "stock")
    command = [str(Path(sys.executable).parent / "rq"), "worker", "--burst", *flags]
    found = subprocess.run(
        [*command, "--url", site.server.url, "tallystick"],
        env=site.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert site.at_rest(id) == "committed"
    assert actions.effects("stock") == 1


def test_our_worker_class_takes_one_queue_only(server: Server) -> None:
    client = connect(server.url, timeout=5, retries=False, decode=False)
    queues = [ActionQueue("one", client), ActionQueue("two", client)]
    with pytest.raises(ValueError, match="exactly one queue"):
        ActionWorker(queues, connection=client)
    client.close()


def test_what_lies_in_redis_is_json_with_an_id_and_nothing_else(site: Site) -> None:
    id = site.approved("item.readable", "plain")
    client = connect(site.server.url, timeout=5, retries=False, decode=False)
    queue = Queue("tallystick", connection=client, serializer=JSONSerializer)
    (job,) = queue.jobs
    assert json.loads(job.data) == ["tallystick.jobs.entry.perform", None, [id], {}]
    client.close()
