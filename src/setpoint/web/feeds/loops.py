"""The feed `loops`: the control loops of a Setpoint server, with their gates (`GET /setpoint/v1/loops`).

Arguments: `runs`, the name of a loop whose latest reconciles are wanted; empty for none. Items:

    "clock":      {"ahead": 0}                       milliseconds by which the cluster's time is ahead, as in a fork
    "gate":       {"mode": "paused", "every": 0, "own": [...], "breakpoints": [...], "stopped": null, "by": "...",
                   "until": 1767226200000,           until when something is held back, 0 if nothing is
                   "note": ""}                       sentences about the limit of CPU time, if it was reached lately
    "components": {"list": [{"name": "kube-scheduler", "state": "leads", "holder": "...", ...}]}
    "deferred":   {"list": [...]}                    names of controllers that start with their first object
    "runs":       {"list": [...]}                    the latest reconciles of the loop in `runs`
    "loop:NAME":  {"name": ..., "mode": ..., "depth": ..., "queued": [...], "working": [...], ...}

While a tab watches, the hold on paused loops is renewed, if the user may do that.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from setpoint.client import Client, Unreachable
from setpoint.client.resources import query_of
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.times import unix_milliseconds
from setpoint.tasks import first_completed
from setpoint.web.feed import Args, FeedOutput, PageContext, text_argument
from setpoint.web.json_lines import json_lines

PATH: Final = "/setpoint/v1/loops"
MISSING: Final = "this server does not show its control loops; only a Setpoint cluster whose loops run beside it does"
_RENEW_EVERY: Final = 120.0
_PAUSE: Final = 1.0
_TOLERANCE: Final = 2_000
"""Milliseconds between two readings of the same clock."""
_LISTS: Final = ("components", "deferred", "runs")


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    runs_of = text_argument(args, "runs", "")
    held = _Hold()
    await first_completed(_follow(ctx, runs_of, output, held), _renew(ctx.client, ctx.clock, held))


class _Hold:
    """Whether something is held back now."""

    def __init__(self) -> None:
        self.until = 0


async def _follow(ctx: PageContext, runs_of: str, output: FeedOutput, held: _Hold) -> None:
    """Pass on what the server sends. A stream that ends is opened again."""
    query = query_of({"watch": True, "runs": runs_of or None})
    known: set[str] = set()
    while True:
        is_first = True
        try:
            async for line in json_lines(ctx.client, PATH, query):
                if is_first:
                    output.set("clock", {"ahead": _ahead(line["now"], ctx.clock)})
                    for name in known - {f"loop:{each['name']}" for each in line.get("loops", ())}:
                        output.remove(name)
                _pass_on(line, output, known, held)
                if is_first:
                    is_first = False
                    output.synced()
        except ApiError as error:
            if error.code in (404, 405) and "control loop" not in error.message:
                raise NotFound(MISSING) from None
            if error.code < 500 and error.code != 429:
                raise
        except Unreachable:
            pass
        await ctx.clock.sleep(_PAUSE)


def _ahead(now: int, clock: Clock) -> int:
    ahead = now - unix_milliseconds(clock.now())
    return ahead if abs(ahead) > _TOLERANCE else 0


def _pass_on(line: dict[str, Any], output: FeedOutput, known: set[str], held: _Hold) -> None:
    if "gate" in line:
        held.until = line["gate"]["until"]
        output.set("gate", line["gate"])
    for name in _LISTS:
        if name in line:
            output.set(name, {"list": line[name]})
    for loop in line.get("loops", ()):
        known.add(f"loop:{loop['name']}")
        output.set(f"loop:{loop['name']}", loop)
    for name in line.get("removed", ()):
        known.discard(f"loop:{name}")
        output.remove(f"loop:{name}")


async def _renew(client: Client, clock: Clock, held: _Hold) -> None:
    while True:
        await clock.sleep(_RENEW_EVERY)
        if held.until:
            with suppress(ApiError, Unreachable):  # without the right, the loops run again after a while
                await client.sender.json("POST", PATH, body={"action": "renew"})
