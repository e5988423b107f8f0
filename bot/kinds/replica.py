"""Replicas: trained from footage, used to speak."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from bot.kinds import Unreadable
from bot.kinds.wire import Answer, Id, Text
from bot.model import Snapshot, Verdict

_TRAINED: Final = frozenset({"completed", "ready"})
_BROKEN: Final = frozenset({"error", "failed", "deleted"})
_FACTS: Final = (
    "replica_name",
    "thumbnail_video_url",
    "training_progress",
    "created_at",
    "updated_at",
)


class _Replica(Answer):
    """Both answers of the service about a replica: the fields of its interface's replica table."""

    replica_id: Id = ""
    replica_name: Text = ""
    status: Text = ""
    thumbnail_video_url: Text = ""
    training_progress: Text = ""
    created_at: Text = ""
    updated_at: Text = ""
    error_message: Text = ""


class Replica:
    """The ``Kind`` of replicas."""

    name: Final = "replica"
    path: Final = "/v2/replicas"
    id_field: Final = "replica_id"
    takes: Literal["minutes", "hours"] = "hours"
    going = frozenset({"training", "started", "queued"})
    kept = frozenset({"replica_name"})

    def body(self, params: Mapping[str, str]) -> dict[str, str]:
        """Return the body of the create call: parameters have the service's own names."""
        return dict(params)

    def created(self, answer: Any) -> Snapshot:  # noqa: ANN401 - any JSON
        """Return what the create call says; its status ends nothing, that takes a read."""
        replica = _Replica.of(answer)
        if not replica.replica_id:
            raise Unreadable("the answer names no replica_id")
        return Snapshot(replica.replica_id, replica.status, Verdict.GOING)

    def read(self, answer: Any, remote_id: str) -> Snapshot:  # noqa: ANN401 - any JSON
        """Return what a read says. A word that is not known means that it is still going."""
        replica = _Replica.of(answer)
        if not replica.status:
            raise Unreadable("the answer has no status")
        if replica.replica_id not in {"", remote_id}:
            raise Unreadable("the answer is about another replica")
        word = replica.status.casefold()
        verdict, reason = Verdict.GOING, ""
        if word in _TRAINED:
            verdict = Verdict.SUCCEEDED
        elif word in _BROKEN:
            verdict = Verdict.FAILED
            reason = replica.error_message
        return Snapshot(remote_id, replica.status, verdict, reason, replica.facts(*_FACTS))

    def matches(self, params: Mapping[str, str], snapshot: Snapshot) -> bool:
        """Return whether the name is the same: a read says nothing else of what was asked for."""
        name = snapshot.facts.get("replica_name")
        return name is not None and name == params.get("replica_name")

    def replica(self, params: Mapping[str, str]) -> str | None:  # noqa: ARG002 - it makes one
        """Return None: it uses none."""
        return None
