"""Create calls, and what one may have made that got no answer."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """One create call that may have cost money."""

    id: int
    job_id: str
    remote_id: str | None
    """What it made, once that is known."""
    made_at: datetime
    """When it was begun."""
    candidate_id: str | None
    """What it may have made, unverified: a callback with its token named it, or a person."""
    user_supplied: bool = False
    """Whether a person named ``candidate_id``."""
    named_by: str | None = None
    """The person who named ``candidate_id``, if one did."""
    named_at: datetime | None = None
    """When ``candidate_id`` was named first."""
    token_hash: str = ""
    """Of the token in its callback address."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What the service lists that an unanswered create call may have made; only a person knows."""

    remote_id: str
    created_at: datetime | None
    """None if the list did not say."""
