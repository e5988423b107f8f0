"""Replicas: trained from footage, used to speak."""

from collections.abc import Mapping
from typing import Final

from bot.kinds import Answer, Comparison, Invalid, Kind, Text, same_words
from bot.links import BadLink, check_file_link
from bot.model import Snapshot

FIELDS: Final = ("train_video_url", "consent_video_url", "replica_name")
MAX_NAME: Final = 100


class _Replica(Answer):
    """The service's answer to a create call or a read: the interface's replica table."""

    replica_name: Text = ""
    thumbnail_video_url: Text = ""
    training_progress: Text = ""


def parse(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a training from the fields of a form, which have the same names.

    Raises:
        Invalid: with a sentence for each field that is wrong.
    """
    errors, links = dict[str, str](), dict[str, str]()
    params = {name: value for name in FIELDS if (value := fields.get(name, "").strip())}
    if "train_video_url" not in params:
        errors["train_video_url"] = "Paste a direct link to the footage."
    for name in ("train_video_url", "consent_video_url"):
        if name in params:
            try:
                params[name] = check_file_link(params[name])
            except BadLink as error:
                errors[name] = str(error)
                links |= {name: error.direct} if error.direct else {}
    if len(params.get("replica_name", "")) > MAX_NAME:
        errors["replica_name"] = f"A name can have at most {MAX_NAME} characters."
    if fields.get("agreed") != "yes":
        errors["agreed"] = "Please confirm that the person has agreed."
    if errors:
        raise Invalid(errors, links)
    return params


def _compare(params: Mapping[str, str], snapshot: Snapshot) -> Comparison:
    """Compare the names: a read has nothing else that was asked for."""
    named = same_words(params.get("replica_name", ""), snapshot.facts.get("replica_name", ""))
    return Comparison.SAME if named else Comparison.UNKNOWN


REPLICA: Final = Kind(
    name="replica",
    path="/v2/replicas",
    id_field="replica_id",
    id_aliases=("face_id",),  # some services call replicas faces
    promised_created=frozenset({"replica_id", "status"}),
    promised_read=frozenset(
        {
            *("replica_id", "replica_name", "thumbnail_video_url", "training_progress", "status"),
            *("created_at", "updated_at"),
        }
    ),
    # null or absent without an error, as the interface says.
    seen_fields=frozenset({"error_message", "replica_type"}),
    schedule="hours",
    in_progress=frozenset({"training", "started", "queued"}),
    kept_params=frozenset({"replica_name"}),
    catalogued=True,
    answer=_Replica,
    good=frozenset({"completed", "ready"}),
    bad=frozenset({"error", "failed", "deleted"}),
    compare=_compare,
)
"""The kind of replicas: its parameters are the fields of the create request."""
