"""The conversation `undo`: the plan that undoes a write, and its execution with the rights of the user.

Arguments: `revision`; `force` and `replace`, as those of `setpoint undo`. The server first sends the plan:

    {"plan": {"revision": 291, "steps": [...], "conflicts": [...], "warnings": [...], "notDone": [...]}}

It has no values of Secrets: the requests with values stay here. After `{"do": "carry out"}` they are sent, with
`{"done": 3}` after each step. `{"refused": ["secret/s (default): ..."]}` with the steps that failed ends it.
"""

from __future__ import annotations

from typing import Any

from setpoint.client.plan_execution import UNDO_PATH, carry_out
from setpoint.meta.errors import BadRequest, Conflict
from setpoint.view.undo_plan import masked_plan
from setpoint.web.feed import Args, Conversation, PageContext


async def run(ctx: PageContext, args: Args, conversation: Conversation) -> None:
    question = _question(args)
    plan: dict[str, Any] = await ctx.client.sender.json("POST", UNDO_PATH, body=question)
    await conversation.send({"plan": masked_plan(plan)})
    if await conversation.receive() != {"do": "carry out"}:
        raise BadRequest('only {"do": "carry out"} can be sent to a plan')
    if plan["conflicts"]:
        raise Conflict("there are conflicts, so nothing was changed")
    refused: list[str] = []
    done = 0
    async for outcome in carry_out(ctx.client, ctx.clock, plan):
        done += 1
        if outcome.error is not None:
            refused.append(outcome.error if isinstance(outcome.error, str) else outcome.error.message)
        await conversation.send({"done": done})
    await conversation.send({"refused": refused})


def _question(args: Args) -> dict[str, Any]:
    revision, force, replace = args.get("revision"), args.get("force", False), args.get("replace", False)
    if type(revision) is not int or not 0 < revision < 2**53:
        raise BadRequest("argument revision must be a revision")
    if type(force) is not bool or type(replace) is not bool:
        raise BadRequest("arguments force and replace must be true or false")
    return {"revision": revision, "force": force, "replace": replace}
