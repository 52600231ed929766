"""Look up the authors of changes on a server that records the causes of its writes, as ours does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from setpoint.client import Client
from setpoint.client.transport import Unreachable
from setpoint.meta.errors import ApiError

_PATH = "/setpoint/v1/causes"
MOST = 200
"""The maximum number of revisions per request."""


class Authors:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._served = True
        """Whether the server has the endpoint and the user may read it."""

    async def of(self, revisions: Sequence[int]) -> dict[int, str] | None:
        """Return the authors by revision, as far as the server knows them; None if it cannot be reached now."""
        if not self._served or not revisions:
            return {}
        try:
            query = "revisions=" + ",".join(map(str, revisions))
            reply = await self._client.sender.request("GET", _PATH, query)
            causes = json.loads(reply.body)["causes"]
            return {int(one["revision"]): author(one) for one in causes}
        except Unreachable:
            return None
        except (ApiError, ValueError, LookupError, TypeError):
            self._served = False
            return {}


def author(cause: dict[str, Any]) -> str:
    """Return the display name of the author of a cause."""
    user, agent = str(cause.get("user", "")), str(cause.get("agent", ""))
    if user.startswith("system:serviceaccount:kube-system:"):
        return user.rpartition(":")[2]
    if user.startswith("system:node:"):
        return f"kubelet {user.removeprefix('system:node:')}"
    if user.startswith("system:kube-"):
        return user.removeprefix("system:")
    program = agent.partition("/")[0].partition(" ")[0]
    return f"{user} ({program})" if program else user
