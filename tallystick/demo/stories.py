"""The stories: each is played by real processes on real targets, and counted at the targets.

A story reads from top to bottom; its docstring is what the audience is told first.
"""

from collections.abc import Callable

from tallystick import State
from tallystick.core.errors import KeyConflict
from tallystick.demo import accidents
from tallystick.demo.accidents import WORK_HORSE, WORKER
from tallystick.demo.scene import APPROVER, ON_CALL, Scene

Story = Callable[[Scene], None]


def clean(play: Scene) -> None:
    """A transfer is proposed, approved, run, and committed once a re-read of the bank proves it."""
    play.accounts(alice="100.00", bob="0.00")
    id = play.propose("bank.transfer", key="clean", source="alice", target="bob", amount="40.00")
    play.approve(id)
    state = play.settled(id).state
    play.journal(id)
    play.balances(alice="60.00", bob="40.00")
    play.expect(State.COMMITTED, state, "1 transfer")


def reject(play: Scene) -> None:
    """An approver says no: there is no effect, ever."""
    play.accounts(alice="100.00", bob="0.00")
    id = play.propose("bank.transfer", key="reject", source="alice", target="bob", amount="99.00")
    state = play.stage.tally.reject(id, by=APPROVER, reason="no invoice for it").state
    play.say(f"{APPROVER} rejects it: no invoice for it")
    play.journal(id)
    play.check("nothing is left to be done", not play.stage.tally.store.open_work())
    play.balances(alice="100.00", bob="0.00")
    play.expect(State.REJECTED, state, "none")


def killed_after_effect(play: Scene) -> None:
    """SIGKILL right after the money moved, with nothing recorded: it is found, not redone."""
    for whom, act in ((WORKER, "whole worker"), (WORK_HORSE, "work-horse only")):
        play.act(act)
        play.accounts(alice="100.00", bob="0.00")
        id = play.propose(
            "bank.transfer", key=f"after-{whom}", source="alice", target="bob", amount="40.00"
        )
        _run_and_kill(play, id, accidents.AFTER_EFFECT, whom)
        play.check("the effect was not sent again", play.stage.tally.get(id).attempts == 1)
        play.balances(alice="60.00", bob="40.00")
        play.expect(State.COMMITTED, play.settled(id).state, "1 transfer")


def killed_before_effect(play: Scene) -> None:
    """SIGKILL after the intent, before the effect: it is sent again where the target allows it."""
    play.act("whole worker")
    play.targets.payments.open_invoice("2041", "75.00")
    id = play.propose("invoice.pay", key="before-worker", invoice="2041", amount="75.00")
    _run_and_kill(play, id, accidents.BEFORE_EFFECT, WORKER)
    paid = (play.targets.payments.invoice("2041") or {})["paid"]
    play.target(f"payment service: invoice 2041, paid {paid}")
    play.check("it was sent again, under the same key", play.stage.tally.get(id).attempts == 2)
    play.expect(State.COMMITTED, play.settled(id).state, "1 payment")

    play.act("work-horse only")
    play.accounts(alice="100.00", bob="0.00")
    id = play.propose(
        "bank.transfer", key="before-horse", source="alice", target="bob", amount="40.00"
    )
    _run_and_kill(play, id, accidents.BEFORE_EFFECT, WORK_HORSE)
    play.balances(alice="60.00", bob="40.00")
    play.check("it was sent again, on the same versions", play.stage.tally.get(id).attempts == 2)
    play.expect(State.COMMITTED, play.settled(id).state, "1 transfer")


def _run_and_kill(play: Scene, id: str, accident: str, whom: str) -> None:
    """Approve an action whose process dies on the way, and see it through."""
    play.stage.ready()
    play.arm(accident, whom)
    play.approve(id)
    when = accident.removeprefix("kill-").replace("-", " the ")
    if whom == WORKER:
        fallen = play.stage.fallen()
        play.say(f"SIGKILL {when}: worker {fallen.pid} is dead with its work-horse; one is left")
    else:
        play.say(f"SIGKILL {when}: the work-horse is dead, and its worker starts another")
    play.settled(id)
    play.journal(id)
    play.recovered(id)
    play.stage.staff()


def stale(play: Scene) -> None:
    """The balance changes between approval and run: what was approved is no longer so."""
    play.accounts(alice="100.00", bob="0.00")
    id = play.propose("bank.transfer", key="stale", source="alice", target="bob", amount="40.00")
    with play.stage.held_up():
        play.approve(id)
        play.accounts(alice="105.00")
        play.say("before a worker comes to it, a clerk pays alice 5.00 at the counter")
    found = play.settled(id)
    play.journal(id)
    play.say(found.why)
    play.balances(alice="105.00", bob="0.00")
    play.expect(State.PRECONDITION_FAILED, found.state, "none")


def compensate(play: Scene) -> None:
    """The bank keeps a fee that nobody approved: a compensating job undoes the transfer."""
    play.accounts(alice="100.00", bob="0.00")
    play.arm(accidents.FEE, "2.00")
    id = play.propose("bank.transfer", key="fee", source="alice", target="bob", amount="40.00")
    play.approve(id)
    found = play.settled(id)
    play.journal(id)
    undoing = play.stage.tally.get(found.rollback["compensation"])
    play.say(f"{undoing.action} was approved in the same decision; action {undoing.id} ran:")
    play.journal(undoing.id)
    play.check("the reversal is committed", undoing.state is State.COMMITTED)
    play.balances(alice="100.00", bob="0.00")
    play.expect(State.ROLLED_BACK, found.state, "1 reversal,\n1 transfer")


def in_band(play: Scene) -> None:
    """Half a page arrives on the website: the worker puts the old page back, and looks again."""
    play.targets.site.page("prices.html").write_text("<p>old prices</p>")
    play.arm(accidents.TORN)
    id = play.propose("site.publish", key="torn", page="prices.html", text="<p>new prices</p>")
    play.approve(id)
    state = play.settled(id).state
    play.journal(id)
    page = play.targets.site.page("prices.html").read_text()
    play.target(f"website: {page}")
    play.check("the old page is back", page == "<p>old prices</p>")
    play.expect(State.ROLLED_BACK, state, "1 publication,\n1 restoration")


def rollback_fails(play: Scene) -> None:
    """The page is torn and cannot be put back: a person is called, and nothing is claimed."""
    play.targets.site.page("terms.html").write_text("<p>old terms</p>")
    play.arm(accidents.TORN)
    play.arm(accidents.NO_WAY_BACK)
    id = play.propose("site.publish", key="no-way-back", page="terms.html", text="<p>new terms</p>")
    play.approve(id)
    state = play.settled(id).state
    play.journal(id)
    play.alert(id, "rollback_failed")
    play.target(f"website: {play.targets.site.page('terms.html').read_text()}")
    play.expect(State.ROLLBACK_FAILED, state, "1 publication")


def blind(play: Scene) -> None:
    """A mail may have left when its process died, and nobody can look: a person decides."""
    play.stage.ready()
    play.arm(accidents.AFTER_EFFECT, WORK_HORSE)
    id = play.propose(
        "mail.send", key="blind", to="carol@example.com", subject="Hello", text="Your parcel left."
    )
    play.approve(id, answer="carol@example.com")
    before = play.settled(id).state
    play.alert(id, "outcome_unknown")
    mails = [mail for mail in play.targets.mailbox.mails() if mail["to"] == "carol@example.com"]
    play.say(f"{ON_CALL} asks carol, who has {len(mails)} mail, and settles it:")
    arguments = ("--to", "committed", "--by", ON_CALL, "--evidence", "carol has it")
    play.say(f"$ tallystick resolve {id} {' '.join(arguments)}")
    play.stage.command("resolve", id, *arguments)
    play.journal(id)
    play.check("it waited for a person", before is State.UNKNOWN)
    shown = f"{before},\n{play.stage.tally.get(id).state}"
    play.expect(f"{State.UNKNOWN},\n{State.COMMITTED}", shown, "1 mail")


def same_key(play: Scene) -> None:
    """The same proposal under the same key, three times: one action, one effect."""
    play.accounts(alice="100.00", bob="0.00")
    order = {"source": "alice", "target": "bob", "amount": "40.00"}
    ids = [play.propose("bank.transfer", key="same", **order) for _ in range(2)]
    play.approve(ids[0])
    state = play.settled(ids[0]).state
    play.say("the agent, which has lost its answer, proposes once more:")
    ids.append(play.propose("bank.transfer", key="same", **order))
    play.check("it was the same action each time", len(set(ids)) == 1)
    play.balances(alice="60.00", bob="40.00")
    play.expect(State.COMMITTED, state, "1 transfer")


def key_conflict(play: Scene) -> None:
    """Another amount under a key that is taken: refused, and nothing is stored."""
    play.accounts(alice="100.00", bob="0.00")
    id = play.propose("bank.transfer", key="taken", source="alice", target="bob", amount="40.00")
    refused = ""
    try:
        play.propose("bank.transfer", key="taken", source="alice", target="bob", amount="90.00")
    except KeyConflict as conflict:
        refused = str(conflict)
        play.say(f"90.00 under the same key: {conflict}")
    play.check("other content was refused", bool(refused))
    play.approve(id)
    state = play.settled(id).state
    play.balances(alice="60.00", bob="40.00")
    play.expect(State.COMMITTED, state, "1 transfer")


def restart(play: Scene) -> None:
    """Every process is killed while an action waits; it is approved and run by their successors."""
    play.accounts(alice="100.00", bob="0.00")
    id = play.propose("bank.transfer", key="restart", source="alice", target="bob", amount="40.00")
    play.stage.ready()
    before, after = play.stage.restart()
    play.say(
        f"SIGKILL to the server and all workers ({_numbers(before)});"
        f" others start in their place ({_numbers(after)})"
    )
    play.check("none of the old processes is left", not before & after)
    waiting = play.stage.tally.get(id).state
    play.check("the action still waits", waiting is State.WAITING_FOR_APPROVAL)
    play.approve(id)
    state = play.settled(id).state
    play.journal(id)
    play.balances(alice="60.00", bob="40.00")
    play.expect(State.COMMITTED, state, "1 transfer")


def _numbers(pids: set[int]) -> str:
    return ", ".join(str(pid) for pid in sorted(pids))


BY_NAME: dict[str, Story] = {
    story.__name__.replace("_", "-"): story
    for story in (
        clean,
        reject,
        killed_after_effect,
        killed_before_effect,
        stale,
        compensate,
        in_band,
        rollback_fails,
        blind,
        same_key,
        key_conflict,
        restart,
    )
}

STORIES = tuple(BY_NAME)
"""The names of the stories, in the order in which they are played."""
