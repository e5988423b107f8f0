"""Videos: a replica speaks a script."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from pydantic import AliasPath, Field

from bot.kinds import Answer, Comparison, Invalid, Kind, Text, letters, same_words
from bot.links import BadLink, check_file_link, check_link
from bot.model import Snapshot

_QUEUED: Final = "queued"
BACKGROUNDS: Final = ("background_url", "background_source_url")
FIELDS: Final = ("replica_id", "script", "video_name", *BACKGROUNDS)
MAX_NAME: Final = 100
_MIN_BEGINNING: Final = 20
"""Letters and digits from which on the beginning of a script says which script it is."""
# Letters by their Unicode category, but invisible.
_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0")
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,149}")


class _Video(Answer):
    """The service's answer to a create call or a read: the interface's video table."""

    video_name: Text = ""
    status_details: Text = ""
    generation_progress: Text = ""
    """Not in the interface document, but seen in some answers: "40/100"."""
    hosted_url: Text = ""
    download_url: Text = ""
    stream_url: Text = ""
    script: Text = Field(default="", validation_alias=AliasPath("data", "script"))
    """The script that was used; "" if the answer has none."""


def is_replica_id(text: str) -> bool:
    """Return whether ``text`` can be a replica's id: a word of at most 150 characters.

    That is as long as the value of an option in a form may be.
    """
    return _ID.fullmatch(text) is not None


def parse(fields: Mapping[str, str], max_script: int) -> dict[str, str]:
    """Return the parameters of a video from the fields of a form, which have the same names.

    ``max_script`` is the highest number of characters of the script.

    Raises:
        Invalid: with a sentence for each field that is wrong.
    """
    errors, links = dict[str, str](), dict[str, str]()
    given = {name: value for name in FIELDS if (value := fields.get(name, "").strip())}
    replica_id, script = given.get("replica_id", ""), given.get("script", "")
    if not replica_id:
        errors["replica_id"] = "Pick a replica or paste a replica ID."
    elif not is_replica_id(replica_id):
        errors["replica_id"] = "That doesn't look like a replica ID."
    if not script:
        errors["script"] = "Write what the replica should say."
    elif not any(letter.isalnum() and letter not in _FILLERS for letter in script):
        errors["script"] = "This script has no letters or digits."
    elif len(script) > max_script:
        errors["script"] = (
            f"The script has {len(script):,} characters. The limit is {max_script:,}: shorten it."
        )
    if len(given.get("video_name", "")) > MAX_NAME:
        errors["video_name"] = f"A name can have at most {MAX_NAME} characters."
    params = dict(given)
    backgrounds = [name for name in BACKGROUNDS if name in given]
    for name in backgrounds:
        try:
            check = check_file_link if name == "background_source_url" else check_link
            params[name] = check(given[name])
        except BadLink as error:
            errors[name] = str(error)
            links |= {name: error.direct} if error.direct else {}
    if len(backgrounds) > 1:
        errors[backgrounds[-1]] = "Choose one background: a web page or a video file."
    wanted = fields.get("background", "")
    if wanted in BACKGROUNDS and wanted not in given:
        errors[wanted] = "Paste the link, or choose no background."
    elif wanted not in {"", "none", *BACKGROUNDS}:
        errors["background"] = "Choose a web page, a video file or no background."
    if errors:
        raise Invalid(errors, links)
    return params


def fingerprint(params: Mapping[str, str]) -> str:
    """Return a hash that the parameters of two videos share which would look and sound alike.

    Their names do not count, nor how the script is spaced.
    """
    script = " ".join(unicodedata.normalize("NFC", params["script"]).split())
    parts = [params["replica_id"].casefold(), script, *(params.get(at, "") for at in BACKGROUNDS)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _compare(params: Mapping[str, str], snapshot: Snapshot) -> Comparison:
    """Compare the scripts, of which a service may return the beginning; without one, the names.

    Case, spaces and punctuation do not count.
    """
    asked, found = (letters(each.get("script", "")) for each in (params, snapshot.facts))
    if not asked or not found:
        named = same_words(params.get("video_name", ""), snapshot.facts.get("video_name", ""))
        return Comparison.SAME if named else Comparison.UNKNOWN
    if found == asked or (len(found) >= _MIN_BEGINNING and asked.startswith(found)):
        return Comparison.SAME
    # A few words of it, or more than was sent: it may be the one.
    related = asked.startswith(found) or found.startswith(asked)
    return Comparison.UNKNOWN if related else Comparison.DIFFERENT


def _uses(params: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the replica that speaks."""
    replica_id = params.get("replica_id")
    return ("replica", replica_id) if replica_id else None


VIDEO: Final = Kind(
    name="video",
    path="/v2/videos",
    id_field="video_id",
    promised_created=frozenset({"video_id", "video_name", "status", "hosted_url", "created_at"}),
    promised_read=frozenset(
        {
            *("video_id", "status", "data", "download_url", "stream_url", "hosted_url"),
            *("status_details", "created_at", "updated_at"),
        }
    ),
    seen_fields=frozenset(
        {
            *("video_name", "generation_progress", "replica_id", "error_details", "fast"),
            *("still_image_url", "transparent_background", "watermark_image_url", "properties"),
        }
    ),
    schedule="minutes",
    in_progress=frozenset({"queued", "generating", "processing", "started"}),
    kept_params=frozenset({"replica_id"}),
    kept_of_made=frozenset({"video_name", "hosted_url"}),
    answer=_Video,
    good=frozenset({"ready", "completed", "done", "succeeded", "success", "finished"}),
    bad=frozenset({"error", "failed", "deleted", "cancelled", "canceled", "rejected"}),
    compare=_compare,
    uses=_uses,
    # That may last for as long as its replica trains.
    is_waiting=lambda snapshot: snapshot.status.casefold() == _QUEUED,
)
"""The kind of videos: its parameters are the fields of the create request."""
