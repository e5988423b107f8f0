"""The kinds of jobs: one module each, with a ``Kind``; and what answers about all of them share.

Models of answers are lenient, and times may have several formats. How answers differ from the
service's interface is found, counted and logged here too.
"""

import html
import logging
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum, StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from bot.links import without_keys
from bot.log import reference, word
from bot.masking import MASKED
from bot.metrics import Metrics
from bot.model import Job, Snapshot, Verdict
from bot.service.errors import reason_in, shown

_LOG: Final = logging.getLogger(__name__)
_PROGRESS: Final = re.compile(r"([0-9]{1,6})\s*/\s*([0-9]{1,6})", re.ASCII)
# In characters. Longer texts are cut.
_MAX_TEXT: Final = 10_000
MAX_ID: Final = 200
"""Of the id of a resource: a longer one is ignored where it is read, and refused where typed."""
# Our clock may be wrong, and the service's times may have no zone.
_CLOCKS_DIFFER: Final = timedelta(days=2)


class Unreadable(ValueError):
    """An answer of the service lacks what the interface document promises."""


class Invalid(ValueError):
    """A form has mistakes.

    Attributes:
        errors: a sentence for each field that is wrong, which says what to do.
        links: those that can be used instead of given ones, by their fields.
    """

    def __init__(self, errors: Mapping[str, str], links: Mapping[str, str]) -> None:
        super().__init__("the form has mistakes")
        self.errors = errors
        self.links = links


class Comparison(Enum):
    """How what the service has compares with what a job asked for."""

    SAME = "same"
    """It is what was asked for."""
    DIFFERENT = "different"
    """It is certainly something else."""
    UNKNOWN = "unknown"
    """Nothing there says."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What the rest of the bot needs to know about a kind of job.

    A new one is a module here, and a feature and a presenter in ``bot/slack``. The parameters of
    its jobs are the fields of the create call.
    """

    name: str
    """Its name in the database and in sentences: "video"."""
    path: str
    """The path that it is created at and read below: "/v2/videos"."""
    id_field: str
    """The field with its id in answers and callbacks: "video_id"."""
    id_aliases: tuple[str, ...] = ()
    """Other fields under which a service has been seen to send its id."""
    promised_created: frozenset[str]
    """The fields that the interface promises in the answer to a create call."""
    promised_read: frozenset[str]
    """The fields that the interface promises in the answer to a read."""
    seen_fields: frozenset[str]
    """Other fields that services have been seen to send."""
    schedule: Literal["minutes", "hours"]
    """The poll schedule: by how long such work usually takes."""
    in_progress: frozenset[str]
    """The service's known words for unfinished work, in lower case.

    A word that is neither here nor final also means unfinished, and is logged once.
    """
    kept_params: frozenset[str]
    """The parameters that outlive the retention time: no text by people, no links."""
    kept_of_made: frozenset[str] = frozenset()
    """The parameters and facts that outlive it of what succeeded, to find it again."""
    catalogued: bool = False
    """Whether other jobs can use what it makes: then a picker offers it."""

    answer: type["Answer"]
    """The model of its answers, whose fields are the facts that are kept."""
    good: frozenset[str]
    """The service's words for what ended well, in lower case."""
    bad: frozenset[str]
    """Those for what did not."""
    compare: Callable[[Mapping[str, str], Snapshot], Comparison]
    """Returns whether a create call with some parameters made what a snapshot shows.

    A name proves nothing false: services make up names of their own.
    """
    uses: Callable[[Mapping[str, str]], tuple[str, str] | None] = lambda _: None
    """Returns what a job with some parameters needs, as (name of its kind, remote id), if anything.

    The service begins such a job only once that is finished.
    """
    is_waiting: Callable[[Snapshot], bool] = lambda _: False
    """Returns whether the service has not begun, so that it may wait for what the job uses."""

    def id_in(self, answer: Mapping[str, Any]) -> str:
        """Return the id in an answer; "" if it has none."""
        names = (self.id_field, *self.id_aliases)
        return next(filter(None, (id_of(answer.get(name)) for name in names)), "")

    def created(self, answer: Any) -> Snapshot:  # noqa: ANN401 - any JSON
        """Return the snapshot in the answer to a create call. No status of it is final.

        Raises:
            Unreadable: it has no id.
        """
        found = self.answer.of(answer)
        remote_id = self.id_in(answer)
        if not remote_id:
            raise Unreadable(f"the answer names no {self.id_field}")
        return Snapshot(remote_id, found.status, Verdict.GOING, facts=found.facts())

    def read(self, answer: Any, remote_id: str) -> Snapshot:  # noqa: ANN401 - any JSON
        """Return the snapshot in the answer to a read; an unknown status means unfinished.

        The id stays as it was given first, whatever case the answer has it in.

        Raises:
            Unreadable: it has no status, or is about something else.
        """
        found = self.answer.of(answer)
        if not found.status:
            raise Unreadable("the answer has no status")
        if self.id_in(answer).casefold() not in {"", remote_id.casefold()}:
            raise Unreadable("the answer is about something else")
        facts = found.facts()
        if "status_details" in facts:
            facts["status_details"] = without_keys(shown(facts["status_details"]))
        status = found.status.casefold()
        if status in self.bad:
            reason = without_keys(shown(reason_of(answer)))
            return Snapshot(remote_id, found.status, Verdict.FAILED, reason, facts)
        verdict = Verdict.SUCCEEDED if status in self.good else Verdict.GOING
        return Snapshot(remote_id, found.status, verdict, facts=facts)


# ── What answers have in common ──────────────────────────────────────────────────────────────────


def text_of(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return a text in a form that can be stored and sent on; "" for a value of another type.

    JSON can hold lone surrogates, left where a text was cut: they become "?".
    """
    if not isinstance(value, str):
        return ""
    return value[:_MAX_TEXT].encode(errors="replace").decode().strip()


Text = Annotated[str, BeforeValidator(text_of)]
"""A field that may be null, missing, empty or of another type: then it is ""."""


def id_of(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return an id; a number becomes its digits, and what cannot be one, or held a secret, ""."""
    number = isinstance(value, int) and not isinstance(value, bool)
    found = str(value) if number else text_of(value)
    fits = len(found) <= MAX_ID and found.isprintable() and MASKED not in found
    return found if fits else ""


def letters(text: str) -> str:
    """Return the letters and digits of a text, in one case, for comparing it with another.

    Services are known to change quotes, case and spaces, and to escape for HTML.
    """
    folded = unicodedata.normalize("NFKC", html.unescape(text)).casefold()
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", folded)))


def same_words(one: str, other: str) -> bool:
    """Return whether two texts have the same letters and digits, and any at all."""
    found = letters(one)
    return bool(found) and found == letters(other)


_REASONS: Final = (
    *("status_details", "error_message", "error_details", "errors", "error"),
    *("failure_reason", "reason", "message"),
)


def reason_of(answer: Mapping[str, Any]) -> str:
    """Return why something failed: services say it in different fields."""
    found = (text_of(reason_in(answer.get(name))) for name in _REASONS)
    return next(filter(None, found), "")


def compare_with_job(kind: Kind, job: Job, snapshot: Snapshot) -> Comparison:
    """Compare what the service has with a job: what is older than the job is something else."""
    created_at = moment(snapshot.facts.get("created_at", ""))
    if created_at is not None and created_at < job.created_at - _CLOCKS_DIFFER:
        return Comparison.DIFFERENT
    return kind.compare(job.params, snapshot)


class Answer(BaseModel):
    """An answer of the service: an object with some known fields; others are ignored."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, hide_input_in_errors=True, defer_build=True
    )
    status: Text = ""
    created_at: Text = ""
    updated_at: Text = ""

    @classmethod
    def of(cls, answer: Any) -> Self:  # noqa: ANN401 - any JSON
        """Return the answer as a model.

        Raises:
            Unreadable: it is not an object.
        """
        try:
            return cls.model_validate(answer)
        except ValidationError as error:
            raise Unreadable("the answer is not the object that was expected") from error

    def facts(self) -> dict[str, str]:
        """Return the fields that are not empty, but for the status."""
        return {name: value for name, value in self if value and name != "status"}


def moment(text: str) -> datetime | None:
    """Return a time of the service in UTC; None if it cannot be parsed.

    Formats that were seen: ISO 8601 with and without a zone (taken as UTC), and HTTP dates.
    """
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = parse(text)
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):
            continue
    return None


def progress(text: str) -> tuple[int, int] | None:
    """Return (done, total) from a progress such as "3/10"; None for anything else."""
    found = _PROGRESS.fullmatch(text)
    if found is None:
        return None
    done, total = int(found[1]), int(found[2])
    return (done, total) if 0 <= done <= total and total > 0 else None


# ── How answers differ from the interface ─────────────────────────────────────────────────────────


class DriftType(StrEnum):
    """What differs."""

    UNKNOWN_STATUS = "unknown_status"
    """A status that is in no list: it counts as unfinished."""
    MISSING_FIELD = "missing_field"
    """A promised field is not there."""
    NEW_FIELD = "new_field"
    """A field that was never seen."""
    ODD_TIME = "odd_time"
    """A time in a format that was never seen."""


_EVENTS: Final = {
    DriftType.UNKNOWN_STATUS: "the service uses an unknown status",
    DriftType.MISSING_FIELD: "the service leaves out a field",
    DriftType.NEW_FIELD: "the service sends a new field",
    DriftType.ODD_TIME: "the service sends a time that cannot be read",
}


def drift_in(kind: Kind, answer: Any, *, created: bool) -> Iterator[tuple[DriftType, str]]:  # noqa: ANN401 - any JSON
    """Yield how the answer to a create call or a read differs, and in which field.

    null counts as a value, and what is no object leaves out all fields. The name of a new field is
    one short word, or "other".
    """
    given = answer if isinstance(answer, dict) else {}
    promised = kind.promised_created if created else kind.promised_read
    for name in sorted(promised - given.keys()):
        yield DriftType.MISSING_FIELD, name
    known = promised | kind.promised_read | kind.seen_fields | set(kind.id_aliases)
    for name in given.keys() - known:
        yield DriftType.NEW_FIELD, word(str(name))
    for name in promised & given.keys():
        if name.endswith("_at") and (value := text_of(given[name])) and moment(value) is None:
            yield DriftType.ODD_TIME, name


class DriftLog:
    """Counts each difference as a metric, and logs the first of each type about each kind."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: set[tuple[str, DriftType]] = set()

    def compare(self, kind: Kind, answer: Any, *, created: bool) -> None:  # noqa: ANN401 - any JSON
        """Note how the answer to a create call or a read differs from what is promised."""
        try:
            for what, field in drift_in(kind, answer, created=created):
                self.note(kind.name, what, field)
        except Exception:  # noqa: BLE001 - the answer may be that of a paid call: it goes on
            _LOG.exception("an answer could not be compared", extra={"reference": reference()})

    def note(self, kind: str, what: DriftType, field: str) -> None:
        """Note one difference in an answer about a kind: in a field, or an unknown status."""
        self._metrics.drift.labels(kind, what.value).inc()
        if (kind, what) in self._logged:
            return
        self._logged.add((kind, what))
        about = "status" if what is DriftType.UNKNOWN_STATUS else "field"
        # A further field does no harm.
        level = logging.INFO if what is DriftType.NEW_FIELD else logging.WARNING
        _LOG.log(level, _EVENTS[what], extra={"kind": kind, about: field})
