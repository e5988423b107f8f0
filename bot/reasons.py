"""The sentence in an error of the service that says what went wrong, wherever it stands."""

from http import HTTPStatus
from itertools import islice
from typing import Any, Final

from bot.masking import MASKED

# The best first: what is in a list is more exact than the sentence beside it, and the title of a
# problem (RFC 9457) is the same for all of its type.
_NAMES: Final = (
    *("errors", "error", "error_message", "error_details", "error_description"),
    *("message", "detail", "details", "msg", "reason", "description", "title"),
)
_MAX_DEPTH: Final = 6
WITHHELD: Final = "The video service gave a reason that can't be shown."
"""What people read in place of a reason that may hold part of a secret."""
_MAX_PARTS: Final = 5
_PHRASES: Final = frozenset(status.phrase.casefold() for status in HTTPStatus)


def reason_in(answer: Any, depth: int = 0) -> str:  # noqa: ANN401 - any JSON
    """Return what a JSON value says went wrong; "" if it says nothing.

    Of several members the first with a sentence counts, before codes such as "invalid_request" and
    words that only repeat the status. The texts of a list are joined, those of an object of lists
    with the names of their fields. Texts are not cut.
    """
    if isinstance(answer, str):
        return answer.strip()
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(answer, list):
        parts = (reason_in(each, depth + 1) for each in answer[:_MAX_PARTS])
        return "; ".join(dict.fromkeys(filter(None, parts)))
    if not isinstance(answer, dict):
        return ""
    found = [said for name in _NAMES if (said := reason_in(answer.get(name), depth + 1))]
    if found:
        best = next(filter(_is_sentence, found), found[0])
        # FastAPI names the field: "loc" is ["body", "script"].
        place = answer.get("loc")
        field = place[-1] if isinstance(place, list) and place else None
        return f"{field}: {best}" if isinstance(field, str) else best
    fields = (
        (name, reason_in(texts, depth + 1))
        for name, texts in islice(answer.items(), _MAX_PARTS)
        if isinstance(texts, list)
    )
    return "; ".join(f"{name}: {said}" for name, said in fields if said)


def shown(reason: str) -> str:
    """Return a reason for people: a sentence in place of one that was masked as a whole."""
    return WITHHELD if reason == MASKED else reason


def _is_sentence(text: str) -> bool:
    return " " in text and text.casefold().rstrip(".") not in _PHRASES
