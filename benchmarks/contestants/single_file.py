"""The straightforward bot that ours is held against: all of it in one file, as written in a day.

It does what the documentation of each of its parts shows: Bolt's defaults and its own server, an
``AsyncWebClient``, plain httpx, aiosqlite with a commit after each change, and a loop that takes
every open job one step further, fifty at a time. It keeps the same promise at the door (stored,
``synchronous=FULL``, then acked), and calls Slack three times for a job: a card, its edit and the
reply. Behind the door it promises less: a create call whose answer is lost is sent again, and so is
a message.
"""

import argparse
import asyncio
import json
import sys
from typing import Any, Final

import aiosqlite
import httpx
from aiohttp import web
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

_AT_ONCE: Final = 50
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY,
    view_id TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL,
    channel TEXT NOT NULL,
    replica_id TEXT NOT NULL,
    script TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'new',
    card TEXT,
    video_id TEXT
);
CREATE INDEX IF NOT EXISTS open_jobs ON jobs (id) WHERE state != 'ended';
"""
_WORDS: Final = {"ready": "Your video is ready", "error": "Your video could not be made"}


def _form(channel: str) -> dict[str, Any]:
    def text(value: str) -> dict[str, str]:
        return {"type": "plain_text", "text": value}

    def field(name: str, label: str, element: dict[str, Any]) -> dict[str, Any]:
        return {"type": "input", "block_id": name, "label": text(label), "element": element}

    script = {"type": "plain_text_input", "action_id": "script", "multiline": True}
    replica = {
        "type": "external_select",
        "action_id": "video_replica",
        "min_query_length": 0,
        "placeholder": text("Choose, or paste an id"),
    }
    name = {"type": "plain_text_input", "action_id": "video_name"}
    return {
        "type": "modal",
        "callback_id": "create_video",
        "private_metadata": json.dumps({"channel": channel}),
        "title": text("Create a video"),
        "submit": text("Create"),
        "blocks": [
            field("replica_id", "Replica", replica),
            field("script", "Script", script),
            field("video_name", "Name", name) | {"optional": True},
        ],
    }


def _listen(app: AsyncApp, db: aiosqlite.Connection) -> None:
    """Answer the command, the picker and the form."""

    @app.command("/video")
    async def open_form(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=_form(body["channel_id"]))

    @app.options("video_replica")
    async def offer_replicas(ack: AsyncAck, payload: dict[str, Any]) -> None:
        query = payload["value"]
        rows = await db.execute_fetchall(
            "SELECT DISTINCT replica_id FROM jobs WHERE replica_id LIKE ? LIMIT 100",
            (f"%{query}%",),
        )
        ids = [row[0] for row in rows] or [query]
        text = [{"type": "plain_text", "text": replica_id} for replica_id in ids]
        await ack(options=[{"text": t, "value": t["text"]} for t in text])

    @app.view("create_video")
    async def take(ack: AsyncAck, body: dict[str, Any], view: dict[str, Any]) -> None:
        values = view["state"]["values"]
        replica = values["replica_id"]["video_replica"]["selected_option"]
        script = values["script"]["script"]["value"]
        name = values["video_name"]["video_name"]["value"]
        if not script or not script.strip():
            await ack(response_action="errors", errors={"script": "What should be said?"})
            return
        channel = json.loads(view["private_metadata"])["channel"]
        await db.execute(
            "INSERT OR IGNORE INTO jobs (view_id, user, channel, replica_id, script, name)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (view["id"], body["user"]["id"], channel, replica["value"], script, name or ""),
        )
        await db.commit()
        await ack()


class _Loop:
    """Takes every open job one step further, and again after ``pause`` seconds."""

    def __init__(
        self,
        db: aiosqlite.Connection,
        slack: AsyncWebClient,
        service: httpx.AsyncClient,
        pause: float,
    ) -> None:
        self._db = db
        self._slack = slack
        self._service = service
        self._pause = pause
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        while True:
            jobs = await self._db.execute_fetchall("SELECT * FROM jobs WHERE state != 'ended'")
            await asyncio.gather(*(self._guarded(job) for job in jobs))
            await asyncio.sleep(self._pause)

    async def _guarded(self, job: aiosqlite.Row) -> None:
        async with self._slots:
            try:
                await (self._begin(job) if job["state"] == "new" else self._look(job))
            except Exception as error:  # noqa: BLE001 - the next round tries again
                sys.stderr.write(f"job {job['id']}: {error!r}\n")

    async def _begin(self, job: aiosqlite.Row) -> None:
        posted = await self._slack.chat_postMessage(
            channel=job["channel"], **self._message(job, "Rendering your video")
        )
        asked = {"replica_id": job["replica_id"], "script": job["script"]}
        if job["name"]:
            asked["video_name"] = job["name"]
        answer = await self._service.post("/v2/videos", json=asked)
        answer.raise_for_status()
        await self._db.execute(
            "UPDATE jobs SET state = 'running', card = ?, video_id = ? WHERE id = ?",
            (posted["ts"], answer.json()["video_id"], job["id"]),
        )
        await self._db.commit()

    async def _look(self, job: aiosqlite.Row) -> None:
        answer = await self._service.get(f"/v2/videos/{job['video_id']}")
        answer.raise_for_status()
        video = answer.json()
        if video["status"] not in _WORDS:
            return
        message = self._message(job, _WORDS[video["status"]], video.get("hosted_url", ""))
        channel, card = job["channel"], job["card"]
        await self._slack.chat_update(channel=channel, ts=card, **message)
        await self._slack.chat_postMessage(channel=channel, thread_ts=card, **message)
        await self._db.execute("UPDATE jobs SET state = 'ended' WHERE id = ?", (job["id"],))
        await self._db.commit()

    def _message(self, job: aiosqlite.Row, words: str, link: str = "") -> dict[str, Any]:
        text = f"<@{job['user']}> {words}: {link}" if link else f"<@{job['user']}> {words}."
        name = job["name"] or job["script"][:100]
        parts = [
            {"type": "section", "text": {"type": "mrkdwn", "text": text}},
            {"type": "section", "text": {"type": "plain_text", "text": name}},
            {
                "type": "context",
                "elements": [{"type": "mrkdwn", "text": f"replica {job['replica_id']}"}],
            },
        ]
        return {"text": text, "blocks": parts}


async def main(arguments: list[str]) -> None:
    """Run until the process is ended; say on which port, as one line of JSON."""
    parser = argparse.ArgumentParser()
    for name in ("database", "token", "signing-secret", "slack-url", "service-url", "service-key"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two rounds")
    chosen = parser.parse_args(arguments)
    async with (
        aiosqlite.connect(chosen.database) as db,
        httpx.AsyncClient(
            base_url=chosen.service_url, headers={"x-api-key": chosen.service_key}, timeout=30
        ) as service,
    ):
        db.row_factory = aiosqlite.Row
        await db.execute("PRAGMA journal_mode = WAL")
        await db.executescript(_TABLE)
        slack = AsyncWebClient(token=chosen.token, base_url=chosen.slack_url)
        app = AsyncApp(client=slack, signing_secret=chosen.signing_secret)
        _listen(app, db)
        # The server that app.start() runs, on a port that the system chooses.
        runner = web.AppRunner(app.web_app())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        sys.stdout.write(json.dumps({"port": runner.addresses[0][1]}) + "\n")
        sys.stdout.flush()
        await _Loop(db, slack, service, chosen.pause).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
