"""The feed `lessons`: the courses and their lessons with the user's progress.

The key of an item is the name of a course, `setpoint`, or of a lesson in it, `setpoint/loop`. The folder of the user's
own course is read again when its files change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from setpoint.tasks import child_tasks
from setpoint.web.feed import Args, FeedOutput, PageContext
from setpoint.web.lessons.library import library_of

_INTERVAL: Final = 2.0
"""Seconds between two looks at the folder."""


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    library = library_of(ctx)
    shown: dict[str, Mapping[str, Any]] = {}
    while True:
        found = library.listed(ctx.user)
        for key in [each for each in shown if each not in found]:
            output.remove(key)
        for key, item in found.items():
            if shown.get(key) != item:
                output.set(key, item)
        shown = found
        output.synced()
        async with child_tasks(library.wait_for_change(), ctx.clock.sleep(_INTERVAL)) as tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
