"""The messages about a request that needs approval, for the page of all texts."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from bot.model import Approval, Failure, Role, Settlement, State
from bot.slack.views import card as bot_cards
from bot.slack.views.blocks import Message
from bot.slack.views.question import approval_request, notice_of_day, training_notice
from tests.slack import test_cards as cards
from tests.slack.test_cards import ANA, BEN, NAMES, NINE, OWED, PRESENTER, PRESENTERS

card: Final = partial(bot_cards.card, names=NAMES)
reply: Final = partial(bot_cards.reply, names=NAMES)


def approval_messages() -> Iterator[tuple[str, Message]]:
    """Yield a request that waits for approval: its card, what approvers see, and how it ends."""
    asked = Approval(asked=("C1",), until=NINE)
    waiting = cards.job(State.WAITING_FOR_APPROVAL, approval=asked)
    yield "The card", card(waiting, PRESENTER)
    directly = replace(waiting, approval=replace(asked, asked=(BEN,)))
    yield "The card, asked directly", card(directly, PRESENTER)
    unnamed = bot_cards.card(directly, PRESENTER, names={ANA: NAMES[ANA]})
    yield "Without names", unnamed
    many = replace(waiting, approval=replace(asked, asked=(BEN, "U1", "U2")))
    yield "With many approvers", card(many, PRESENTER)
    nobody = replace(waiting, approval=replace(asked, asked=()))
    unreached = card(nobody, PRESENTER, approvers=[BEN])
    yield "Nothing could be sent", unreached
    yield "No approver is left", card(nobody, PRESENTER)
    owed = replace(OWED, role=Role.APPROVAL, number=0)
    request = approval_request(owed, waiting, PRESENTER, [BEN], replica="Anna")
    yield "For approvers", request
    again = replace(waiting, attempts=1)
    yield (
        "Create again, for approvers",
        approval_request(owed, again, PRESENTER, [BEN], replica="Anna"),
    )
    yield "Create again, on the card", card(again, PRESENTER)
    copied = approval_request(owed, replace(waiting, copied=True), PRESENTER, [BEN])
    yield "After a backup was restored", copied
    decided = replace(asked, decided_by=BEN, decided_at=NINE)
    over = {}
    for settlement, failure in (
        (Settlement.APPROVED, None),
        (Settlement.DECLINED, Failure.DECLINED),
        (Settlement.CANCELLED, Failure.WITHDRAWN),
        (Settlement.UNANSWERED, Failure.NOT_APPROVED),
        (Settlement.TURNED_UP, None),
    ):
        reason = "Please shorten it." if failure is Failure.DECLINED else ""
        settled = replace(owed, settled_as=settlement, settled_by=BEN)
        by_nobody = settlement is Settlement.UNANSWERED
        ended = replace(waiting, approval=asked if by_nobody else decided, reason=reason)
        name = settlement.value.capitalize().replace("_", " ")
        yield f"{name}, for approvers", approval_request(settled, ended, PRESENTER)
        if failure is not None:
            over[name] = replace(ended, state=State.FAILED, failure=failure)
    for name, ended in over.items():
        yield f"{name}, on the card", card(ended, PRESENTER)
    for name, ended in over.items():
        yield f"{name}, in the closing reply", reply(ended, PRESENTER)
    of_owner = replace(directly, user=ANA, owner=BEN, asks_owner=True)
    notice = approval_request(
        replace(owed, direct=True, addressee=BEN), of_owner, PRESENTER, replica="Anna"
    )
    yield "For an owner", notice
    made = notice_of_day([cards.WELL, cards.rendering()], {cards.WELL.id}, PRESENTERS)
    yield "For an owner, once a day", made
    yield "For the person in the footage", training_notice(cards.rendering(), "Ben, office")
    yield "Approved, on the card", card(replace(cards.WELL, approval=decided), PRESENTER)
