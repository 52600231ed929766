"""Reads the stream of writes of a Setpoint API server (`GET /setpoint/v1/writes?watch=true`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

from setpoint.client import Client, Unreachable
from setpoint.client.failures import failure_of
from setpoint.client.resources import query_of
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Expired, NotFound
from setpoint.view.timeline import is_routine
from setpoint.view.writes import HEARTBEATS
from setpoint.web.json_lines import json_lines

PATH: Final = "/setpoint/v1/writes"
_FUTURE: Final = 2**53
_PAUSE, _MAX_PAUSE = 0.2, 10.0
MISSING: Final = "this server does not record who writes what; only a Setpoint API server does"


async def read_recent(client: Client, most: int) -> tuple[list[dict[str, Any]], int]:
    """Return the latest writes, the oldest first and without heartbeats and Events, and the newest revision.

    Raises NotFound if the server does not record writes, and ApiError."""
    try:
        newest = int((await client.sender.json("GET", PATH, query_of({"after": _FUTURE, "limit": 1})))["newest"])
        query = query_of({"after": max(1, newest - most), "limit": most, "changes": True})
        found = (await client.sender.json("GET", PATH, query))["writes"]
    except Expired:
        return [], newest
    except ApiError as error:
        if error.code in (404, 405):
            raise NotFound(MISSING) from None
        raise
    except (LookupError, TypeError, ValueError):
        raise NotFound(MISSING) from None
    return [each for each in found if each["revision"] <= newest and not _is_routine(each)], newest


def _is_routine(write: dict[str, Any]) -> bool:
    return all(
        each.get("part", HEARTBEATS) == HEARTBEATS or is_routine(each["group"], each["resource"])
        for each in write["objects"]
    )


async def follow_writes(client: Client, clock: Clock, after: int = 0) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the lines of the stream, and continue where it ended. Writes that were compacted meanwhile are missing: the
    line `start` says from where on there are all.

    Raises NotFound if the server has no such stream, and other errors that do not pass by themselves."""
    pause = _PAUSE
    while True:
        try:
            async for line in _lines(client, after):
                if line["type"] == "error":
                    raise failure_of(line["error"])
                after = _revision(line) or after
                pause = _PAUSE
                yield line
        except Expired:
            after = 0
        except Unreachable:
            pause = min(2 * pause, _MAX_PAUSE)
        except ApiError as error:
            if error.code in (404, 405):
                raise NotFound(MISSING) from None
            if error.code < 500 and error.code != 429:
                raise
            pause = min(2 * pause, _MAX_PAUSE)
        await clock.sleep(pause)


def _revision(line: dict[str, Any]) -> int:
    found = line["write"]["revision"] if line["type"] == "write" else line.get("revision")
    return found if isinstance(found, int) else 0


async def _lines(client: Client, after: int) -> AsyncGenerator[dict[str, Any], None]:
    async for line in json_lines(client, PATH, query_of({"watch": True, "after": after or None})):
        try:
            if line["type"] == "write":
                line["write"]["objects"][0]["part"]
        except (LookupError, TypeError):
            raise Unreachable("the server sent something that is not a line about writes") from None
        yield line
