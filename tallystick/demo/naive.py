"""The naive order, for comparison: plain RQ with Retry, which marks a job done after its effect.

It is what one writes first: skip what is marked done, act, mark it done, and let RQ retry what
died. The same kill at the same targets shows what that costs. Only the work-horse is killed: when
its parent dies too, RQ needs a minute at best to notice.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import httpx
from rq import Queue, Retry
from rq.job import JobStatus
from rq.serializers import JSONSerializer

from tallystick.demo import accidents
from tallystick.demo.accidents import accident_prone
from tallystick.demo.processes import until
from tallystick.demo.scene import AGENT, APPROVER
from tallystick.demo.show import Duel, Show
from tallystick.demo.stage import Stage, opened
from tallystick.demo.targets import here
from tallystick.jobs.connection import connect

_QUEUE = "naive"
_ENDED = {JobStatus.FINISHED, JobStatus.FAILED}


# --- the jobs, as `rq worker` runs them ----------------------------------------------------------


def transfer(order: str, source: str, target: str, amount: str) -> None:
    """Move money, unless this order is marked done."""
    _once(order, lambda: here().bank.transfer(source, target, Decimal(amount), order=order))


def pay(order: str, invoice: str, amount: str) -> None:
    """Pay an invoice, unless this order is marked done."""
    asked = {"invoice": invoice, "amount": amount}
    _once(order, lambda: httpx.post(f"{here().service_url}/payments", json=asked, timeout=1))


def mail(order: str, to: str, subject: str, text: str) -> None:
    """Send a mail, unless this order is marked done."""
    _once(order, lambda: here().mailbox.deliver(to, subject, text))


def _once(order: str, effect: Callable[[], Any]) -> None:
    """The naive order: look at the mark, act, set the mark."""
    mark = here().folder / f"done-{order}"
    if mark.exists():
        return
    accident_prone(effect)()
    mark.touch()


# --- the comparison ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Order:
    """One thing to do, in both ways."""

    name: str
    """The target, as the audience is told."""
    guarantee: str
    job: Callable[..., None]
    action: str
    params: dict[str, str]
    answer: str | None = None


ORDERS = (
    Order(
        "bank (SQLite)",
        "It books whatever it is told; it can be read.",
        transfer,
        "bank.transfer",
        {"source": "alice", "target": "bob", "amount": "40.00"},
    ),
    Order(
        "payments (HTTP)",
        "The service ignores the Idempotency-Key header; it can be read.",
        pay,
        "invoice.pay-once",
        {"invoice": "2041", "amount": "75.00"},
    ),
    Order(
        "mail (blind)",
        "It cannot even be read.",
        mail,
        "mail.send",
        {"to": "carol@example.com", "subject": "Hello", "text": "Your parcel left."},
        answer="carol@example.com",
    ),
)


def compare(show: Show) -> list[Duel]:
    """Give each order to both, and SIGKILL the work-horse right after the effect."""
    duels: list[Duel] = []
    with opened(workers=1, service=("--deaf",)) as stage:
        options = ("--url", stage.tally.url, "--serializer", "rq.serializers.JSONSerializer")
        stage.start("rq", "rq.cli", "worker", *options, _QUEUE)
        stage.targets.bank.open_account("alice", "200.00")
        stage.targets.bank.open_account("bob", "0.00")
        stage.targets.payments.open_invoice("2041", "75.00")
        stage.ready()
        for order in ORDERS:
            show.title(len(duels) + 1, order.name, order.guarantee)
            naive = _naively(stage, order)
            show.say("naive: skip what is marked done, act, SIGKILL, mark it done; RQ retries")
            show.target(f"{naive[1]} effects, and RQ says {naive[0]!r}")
            ours = _governed(stage, order)
            show.say("ours: store the intent, act, SIGKILL, store the reply; the next one looks")
            show.target(f"{ours[1]} effect, and Tallystick says {ours[0]!r}")
            duels.append(Duel(order.name, *naive, *ours))
    return duels


def _naively(stage: Stage, order: Order) -> tuple[str, int]:
    """What RQ says in the end, and the number of effects at the target."""
    before = stage.targets.effects()
    client = connect(stage.tally.url, timeout=10, retries=True, decode=False)
    try:
        queue = Queue(_QUEUE, connection=client, serializer=JSONSerializer)
        accidents.arm(accidents.AFTER_EFFECT, accidents.WORK_HORSE)
        job = queue.enqueue(
            order.job, kwargs={"order": order.action, **order.params}, retry=Retry(3)
        )
        until(lambda: job.get_status() in _ENDED, "the end of the naive job")
        return str(job.get_status(refresh=False).value), _since(stage, before)
    finally:
        client.close()


def _governed(stage: Stage, order: Order) -> tuple[str, int]:
    """The state that our action comes to, and the number of effects at the target."""
    before = stage.targets.effects()
    accidents.arm(accidents.AFTER_EFFECT, accidents.WORK_HORSE)
    id = stage.tally.propose(order.action, order.params, key=order.action, by=AGENT).id
    stage.tally.approve(id, by=APPROVER, answer=order.answer)
    state = stage.tally.wait(id, timeout=20).state
    return str(state), _since(stage, before)


def _since(stage: Stage, before: Counter[str]) -> int:
    return (stage.targets.effects() - before).total()
