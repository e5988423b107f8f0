"""The invariants of questions and approvals, checked on the disk and on what Slack shows."""

from collections import Counter
from collections.abc import Iterator

from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Message
from tests.disk import Rows

_SETTLED = ("Approved by", "Declined by", "Cancelled by", "Not approved in time")
_NOWHERE = frozenset({"undeliverable", "withdrawn"})


def check_questions(rows: Rows) -> None:
    """Check that a job has an open question while it waits for an answer, and only then."""
    asked = {
        id_ for id_, job in rows.jobs.items() if job["state"] == "unconfirmed" and job["asked"]
    }
    owed: Counter[str] = Counter()
    states = {delivery["id"]: delivery["state"] for delivery in rows.deliveries.values()}
    for key, delivery in rows.deliveries.items():
        is_listed = delivery["state"] == "listed"
        assert is_listed or delivery["listed_in"] is None, f"{key} is in two messages"
        if delivery["role"] == "question" and delivery["settled_as"] is None:
            state = states[delivery["listed_in"]] if is_listed else delivery["state"]
            is_open = state not in _NOWHERE
            assert not is_open or delivery["job_id"] in asked, f"{key} is still open"
            owed[delivery["job_id"]] += is_open
    for id_ in asked:
        assert id_ in owed, f"{id_} waits for an answer, and nobody is asked"
        assert owed[id_] <= 1, f"{id_} is asked about twice"


def check_approvals(rows: Rows) -> None:
    """Check that approvers are asked about a job while it waits for them, and only then."""
    asked, approved = set(), set()
    for key, delivery in rows.deliveries.items():
        if delivery["role"] == "approval":
            asked.add(delivery["job_id"])
            if delivery["settled_as"] == "approved":
                approved.add(delivery["job_id"])
            waits = rows.jobs[delivery["job_id"]]["state"] == "waiting_for_approval"
            is_open = delivery["settled_as"] is None and delivery["state"] not in _NOWHERE
            assert not is_open or waits, f"{key} is still open"
    for id_, job in rows.jobs.items():
        assert job["approval_until"] is None or id_ in asked, f"nobody is asked to approve {id_}"
        # Of one that waits, or waited, to be created again, the first approval is settled so.
        if job["approval_until"] is not None and job["attempts"] and id_ not in approved:
            assert job["decided_by"] not in {None, job["user_id"]}, f"{id_} was not approved"


def _edited(rows: Rows, slack: SandboxSlack, role: str) -> Iterator[Message]:
    """Check that each posted message of a role was edited; yield those that Slack let change."""
    for key, delivery in rows.deliveries.items():
        if delivery["role"] != role or delivery["state"] != "posted":
            continue
        edits = [
            call
            for call in slack.calls
            if call.method == "chat.update" and call.arguments.get("ts") == delivery["ts"]
        ]
        assert edits, f"{key} was never edited"
        if edits[-1].ok and not edits[-1].fault:
            shown = slack.find(delivery["channel"], delivery["ts"])
            assert shown is not None
            yield shown


def check_final_approvals(rows: Rows, slack: SandboxSlack) -> None:
    """Check that each approval says how it was settled, if Slack allowed the edit."""
    for shown in _edited(rows, slack, "approval"):
        assert "*Approve this" not in shown.text, shown.text
        assert any(word in shown.text for word in _SETTLED), shown.text


def check_final_questions(rows: Rows, slack: SandboxSlack) -> None:
    """Check that each question says how it was settled, if Slack allowed the edit."""
    for shown in _edited(rows, slack, "question"):
        assert " get made?" in shown.text, shown.text
        assert "I found it" not in str(shown.blocks), shown.text
        assert "Answer each" not in str(shown.blocks), shown.text
