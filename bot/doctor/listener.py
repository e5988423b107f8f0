"""A server in the bot's place, to see whether calls from outside arrive where it would listen."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

_MAX_BYTES = 64 * 1024


class Listener:
    """Remembers the paths of requests that have its token in their path or body."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.paths: set[str] = set()

    async def answer(self, request: web.Request) -> web.Response:
        """Answer 200 to a request with the token, and 503 to others: the bot is not there."""
        try:
            body = await request.read()
        except web.HTTPException:
            body = b""
        if self.token in request.path or self.token.encode() in body:
            self.paths.add(request.path)
            return web.Response(text="ok")
        return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE)


@asynccontextmanager
async def listening(host: str, port: int, token: str) -> AsyncIterator[Listener]:
    """Listen where the bot would, until the end.

    Raises:
        OSError: the address cannot be used.
    """
    listener = Listener(token)
    app = web.Application(client_max_size=_MAX_BYTES)
    app.router.add_route("*", "/{path:.*}", listener.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield listener
    finally:
        await runner.cleanup()
