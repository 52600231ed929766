"""Detects what a server offers beyond the Kubernetes API, so that the page can say what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from setpoint.client import Client, Unreachable
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.tasks import run_all, within

_PATHS: Final[Mapping[str, str]] = {
    "why": "/setpoint/v1/why?resource=namespaces&name=default",
    "history": "/setpoint/v1/history",
    "past": "/at/-1s/version",
    "forks": "/setpoint/v1/forks",
    "loops": "/setpoint/v1/loops",
    "faults": "/setpoint/v1/faults",
}
"""A path for each feature. A server that has the feature answers it, if only with 400 because arguments are missing."""
_TIMEOUT: Final = 5.0
_MISSING: Final = (401, 403, 404, 501)


async def find_features(client: Client, clock: Clock) -> list[str]:
    """Return the names of the features that the server has and the user may use."""
    found = await run_all(*(_has(client, clock, path) for path in _PATHS.values()))
    return [name for name, has in zip(_PATHS, found, strict=True) if has]


async def _has(client: Client, clock: Clock, path: str) -> bool:
    path, _, query = path.partition("?")
    try:
        await within(clock, _TIMEOUT, client.sender.request("GET", path, query))
    except ApiError as error:
        return error.code not in _MISSING and error.code < 500
    except (Unreachable, TimeoutError):
        return False
    return True
