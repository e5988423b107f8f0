"""Approval before spending: which requests need one, who may give it, and how one went."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Approval:
    """That somebody else has to approve a request before anything is created for it."""

    asked: tuple[str, ...]
    """The ids of who was asked: of a channel, or of people; none if nobody could be asked."""
    until: datetime
    """When it expires."""
    decided_by: str | None = None
    """The person who approved, declined or cancelled the request; None if nobody did."""
    decided_at: datetime | None = None

    @property
    def channel(self) -> str | None:
        """The channel in which it was asked for; None if people were asked directly."""
        return self.asked[0] if self.asked and self.asked[0].startswith(("C", "G")) else None


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """Which requests need approval, and whose."""

    approvers: frozenset[str] = frozenset()
    """The ids of the people who are asked; nothing needs approval without any."""
    admins: frozenset[str] = frozenset()
    """The ids of those who may decide too."""
    above: int = 0
    """The longest script that needs none, in characters."""
    channel: str | None = None
    """Where they are asked; None for a direct message to each."""

    @property
    def everybody(self) -> frozenset[str]:
        """Who may decide about some requests."""
        return self.approvers | self.admins

    def is_needed(self, script: str | None) -> bool:
        """Return whether a request needs approval; ``script`` is None for a training."""
        return bool(self.approvers) and (script is None or len(script) > self.above)

    def may_decide(self, user: str, requester: str) -> bool:
        """Return whether ``user`` may approve or decline: nobody may decide about their own."""
        return user != requester and user in self.everybody

    def people(self, requester: str) -> tuple[str, ...]:
        """Return who is asked about a request: the approvers, or else the admins."""
        others = (self.approvers - {requester}) or (self.admins - {requester})
        return tuple(sorted(others))

    def asked(self, requester: str) -> tuple[str, ...]:
        """Return the ids of who is asked about a request; none if nobody could approve it."""
        people = self.people(requester)
        return (self.channel,) if self.channel is not None and people else people
