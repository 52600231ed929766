"""The feed `faults`: the faults that can be injected into a Setpoint cluster, and those in effect.

It has no arguments. Items:

    "kind:ID":   {"id": "node-stop", "title": ..., "about": ..., "group": ..., "fields": [...], "options": {...}, ...}
    "active:ID": {"id": "f1", "fault": "node-stop", "text": "powered node-2 off", "by": ..., "since": ..., "until": ...}
    "state":     {"simulatedNodes": 3, "realNodes": 0, "components": [...]}
"""

from __future__ import annotations

from typing import Any, Final

from setpoint.client import Unreachable
from setpoint.meta.errors import ApiError, NotFound
from setpoint.web.feed import Args, FeedOutput, PageContext

PATH: Final = "/setpoint/v1/faults"
MISSING: Final = "faults cannot be injected here: this is not a Setpoint cluster whose components run beside the server"
_INTERVAL: Final = 1.0


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    shown: dict[str, Any] = {}
    while True:
        try:
            found = await ctx.client.sender.json("GET", PATH)
        except ApiError as error:
            if error.code in (404, 405):
                raise NotFound(MISSING) from None
            if error.code < 500 and error.code != 429:
                raise
        except Unreachable:
            pass
        else:
            shown = _show(output, shown, _items(found))
            output.synced()
        await ctx.clock.sleep(_INTERVAL)


def _items(found: dict[str, Any]) -> dict[str, Any]:
    state = {name: found[name] for name in ("simulatedNodes", "realNodes", "components")}
    return {
        "state": state,
        **{f"kind:{each['id']}": each for each in found["possible"]},
        **{f"active:{each['id']}": each for each in found["active"]},
    }


def _show(output: FeedOutput, shown: dict[str, Any], items: dict[str, Any]) -> dict[str, Any]:
    """Pass on what has changed, and return what is shown now."""
    for key, item in items.items():
        if shown.get(key) != item:
            output.set(key, item)
    for key in shown.keys() - items.keys():
        output.remove(key)
    return items
