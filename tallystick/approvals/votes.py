"""A vote: one person's signed decision on one digest."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tallystick.approvals.keys import Signer
from tallystick.core.canonical import Json

APPROVE, REJECT = "approve", "reject"

_PURPOSE = "tallystick.vote.v1"


@dataclass(frozen=True, slots=True)
class Vote:
    """What a person decided, about exactly which content, and the signature over all of it."""

    action_id: str
    digest: str
    decision: str
    who: str
    answer: str | None
    """What the approver typed back to a challenge."""
    at: int
    """When it was cast: milliseconds of the store's clock."""
    namespace: str
    """The product stage it belongs to, so that a vote cannot be replayed in another."""
    key_id: str = ""
    signature: str = ""

    def payload(self) -> dict[str, Json]:
        """The signed part."""
        return {
            "purpose": _PURPOSE,
            "action_id": self.action_id,
            "digest": self.digest,
            "decision": self.decision,
            "who": self.who,
            "answer": self.answer,
            "at": self.at,
            "namespace": self.namespace,
        }

    def signed(self, signer: Signer) -> "Vote":
        """The same vote with this signer's key id and signature."""
        return replace(self, key_id=signer.key_id, signature=signer.sign(self.payload()))

    def as_json(self) -> dict[str, Json]:
        """The form in which the journal keeps it."""
        return self.payload() | {"key_id": self.key_id, "signature": self.signature}

    @classmethod
    def from_json(cls, stored: Mapping[str, Json]) -> "Vote":
        """Read a stored vote. Raises ValueError if a field is missing or of a wrong type."""
        fields = dict(stored)
        if fields.pop("purpose", None) != _PURPOSE:
            raise ValueError("not a vote")
        answer, at = fields.pop("answer", None), fields.pop("at", None)
        if type(at) is not int or not (answer is None or isinstance(answer, str)):
            raise ValueError("a stored vote is malformed")
        words = {name: value for name, value in fields.items() if isinstance(value, str)}
        if words.keys() != fields.keys():
            raise ValueError("a stored vote is malformed")
        try:
            return cls(answer=answer, at=at, **words)
        except TypeError as error:
            raise ValueError(f"a stored vote is malformed: {error}") from None
