"""What the service's answers have in common: lenient models, and times in whatever shape."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from bot.kinds import Unreadable

# Longer texts are cut: no message takes them, and nobody reads them.
_LONGEST: Final = 10_000
_LONGEST_ID: Final = 200


def text_of(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return a text of the service's that can be stored and sent on; "" where it is none.

    JSON can hold halves of characters, left over where somebody cut a text: they become "?".
    """
    if not isinstance(value, str):
        return ""
    return value[:_LONGEST].encode(errors="replace").decode().strip()


Text = Annotated[str, BeforeValidator(text_of)]
"""A field that may be null, missing, empty or of another type: then it is ""."""


def _id(value: Any) -> str:  # noqa: ANN401 - any JSON
    number = isinstance(value, int) and not isinstance(value, bool)
    found = str(value) if number else text_of(value)
    return found if len(found) <= _LONGEST_ID and found.isprintable() else ""


Id = Annotated[str, BeforeValidator(_id)]
"""An id: a word, and where it comes as a number, that number's digits."""


class Answer(BaseModel):
    """An answer of the service: an object, of whose fields some are known."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    @classmethod
    def of(cls, answer: Any) -> Self:  # noqa: ANN401 - any JSON
        """Read it.

        Raises:
            Unreadable: it is not an object.
        """
        try:
            return cls.model_validate(answer)
        except ValidationError as error:
            raise Unreadable("the answer is not the object that was expected") from error

    def facts(self, *names: str) -> Mapping[str, str]:
        """Return those of the named fields that say something."""
        return {name: value for name in names if (value := getattr(self, name))}


def moment(text: str) -> datetime | None:
    """Return a time that the service wrote, or None where it cannot be read.

    Seen so far: ISO 8601 with and without zone, and the format of HTTP dates. Without a zone it is
    taken as UTC.
    """
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = parse(text)
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):
            continue
    return None
