"""The invariants of questions, checked on the disk and on what Slack shows."""

from collections import Counter

from sandbox.slack import SandboxSlack
from tests.disk import Rows

_NOWHERE = frozenset({"undeliverable", "withdrawn"})


def check_questions(rows: Rows) -> None:
    """Check that a job has an open question while it waits for an answer, and only then."""
    asked = {
        id_ for id_, job in rows.jobs.items() if job["state"] == "unconfirmed" and job["asked"]
    }
    owed: Counter[str] = Counter()
    for key, delivery in rows.deliveries.items():
        if delivery["role"] == "question" and delivery["settled_as"] is None:
            is_open = delivery["state"] not in _NOWHERE
            assert not is_open or delivery["job_id"] in asked, f"{key} is still open"
            owed[delivery["job_id"]] += is_open
    for id_ in asked:
        assert id_ in owed, f"{id_} waits for an answer, and nobody is asked"
        assert owed[id_] <= 1, f"{id_} is asked about twice"


def check_final_questions(rows: Rows, slack: SandboxSlack) -> None:
    """Check that each question says how it was settled, if Slack allowed the edit."""
    for key, delivery in rows.deliveries.items():
        if delivery["role"] != "question" or delivery["state"] != "posted":
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
            assert "We didn't know whether" in shown.text, shown.text
            assert "I found it" not in str(shown.blocks), shown.text
