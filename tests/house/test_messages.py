"""The page with every text of the bot: it is current, and nothing is missing on it."""

import pytest

from tests import messages
from tests.sentences import literals, sources


async def test_the_page_of_all_texts_is_current() -> None:
    written = messages.PAGE.read_text(encoding="utf-8")
    assert written == await messages.page(), "python -m tests.messages writes it"


def test_no_sentence_of_the_source_is_missing_on_the_page() -> None:
    page = messages.PAGE.read_text(encoding="utf-8")
    assert messages.rest(page) == {}
    found = [text for _, source in sources() for text in literals(source)]
    assert len(found) > 200


@pytest.mark.parametrize(
    "words", ["somebody", "nobody", "at once", "after all", "runs this bot", "charged for it"]
)
def test_people_read_plain_words(words: str) -> None:
    assert words not in messages.PAGE.read_text(encoding="utf-8").casefold()


def test_sentences_are_found_wherever_they_are_in_the_source() -> None:
    source = """
\'\'\'A docstring is not shown.\'\'\'
_END: Final = "Please wait."

def answer(noun, who):
    _LOG.info("it was answered", extra={"reason": f"Nobody was {who}"})
    re.compile("(two|three) words")
    return f"Your {noun} isn\'t ready, <@{who}>. {_END}" if who else "Try again"
"""
    sentences = ["Please wait.", "Your {noun} isn't ready, <@{}>. Please wait.", "Try again"]
    assert literals(source) == sentences
    assert messages.is_on("Your replica isn't ready, @ben. Please wait.", sentences[1])
    assert not messages.is_on("Your replica is ready, @ben. Please wait.", sentences[1])
