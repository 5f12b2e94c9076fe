"""Joins several verdicts into one."""

from tallystick.core.canonical import Json
from tallystick.core.errors import InvalidInput
from tallystick.verifiers.verdict import Answer, Verdict


def all_of(*verdicts: Verdict) -> Verdict:
    """Fails if any verdict fails; else inconclusive if any is; holds only if all of them hold.

    The evidence is a list in the order of the arguments, so that a difference reads `[1].balance`;
    it names the failing parts alone. Reasons are joined, each with its position. Raises
    `InvalidInput` for no verdicts at all, because nothing looked at proves nothing.
    """
    if not verdicts:
        raise InvalidInput(
            field="verdicts", problem="there are none to join", remedy="Pass at least one."
        )
    answers = {verdict.answer for verdict in verdicts}
    observed = [verdict.observed for verdict in verdicts]
    reason = "; ".join(f"[{at}] {one.reason}" for at, one in enumerate(verdicts) if one.reason)
    if Answer.FAILS in answers:
        expected = [_wanted(verdict) for verdict in verdicts]
        return Verdict.fails(expected=expected, observed=observed, reason=reason)
    if Answer.INCONCLUSIVE in answers:
        return Verdict.inconclusive(reason=reason, observed=observed)
    return Verdict.holds(observed=observed, reason=reason)


def _wanted(verdict: Verdict) -> Json:
    # Only a failing part may show as a difference: for the others, what was seen was not refused.
    return verdict.expected if verdict.answer is Answer.FAILS else verdict.observed
