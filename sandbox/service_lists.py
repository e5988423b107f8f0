"""The list of the sandbox's replicas: in no contract, but such services have one.

``GET /v2/replicas`` with ``limit`` and ``page``, answered with ``data`` and ``total_count``
(https://docs.tavus.io/api-reference/phoenix-replica-model/get-replicas).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from aiohttp import web

from sandbox import service_bodies
from sandbox.service_jobs import Replica

_DEFAULT_LIMIT: Final = "10"
_MAX_LIMIT: Final = 100


@dataclass
class Lists:
    """How the service lists.

    Attributes:
        pages: whether it knows pages; if not, each is the first one.
        overrides: members that are listed wrong, by the id of the replica.
    """

    pages: bool = True
    overrides: dict[str, Mapping[str, object]] = field(default_factory=dict)

    def page(
        self, request: web.Request, replicas: Sequence[Replica], now: datetime, base_url: str
    ) -> web.Response:
        """Return a page of what is not deleted, the newest first.

        ``replica_type`` limits replicas to "user" or "system": all are of people here.
        """
        limit = request.query.get("limit", _DEFAULT_LIMIT)
        page = request.query.get("page", "1")
        if not limit.isdecimal() or not page.isdecimal() or not 1 <= int(limit) <= _MAX_LIMIT:
            return service_bodies.bad_request("Invalid limit or page")
        if request.query.get("replica_type", "user") != "user":
            replicas = []
        shown = sorted(
            (each for each in replicas if not each.deleted),
            key=lambda each: each.created_at,
            reverse=True,
        )
        end = (max(1, int(page)) if self.pages else 1) * int(limit)
        data = [
            {
                **service_bodies.replica_read(each, now, base_url),
                **self.overrides.get(each.replica_id, {}),
            }
            for each in shown[end - int(limit) : end]
        ]
        return web.json_response({"data": data, "total_count": len(shown)})
