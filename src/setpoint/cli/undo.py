"""`setpoint undo`: undo one write. Also the part that it shares with `setpoint restore --at`: plans as text, their
confirmation, and their execution with ordinary requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.tabwriter import align
from setpoint.client.plan_execution import UNDO_PATH, StepOutcome
from setpoint.client.plan_execution import carry_out as execute
from setpoint.meta.errors import NotFound
from setpoint.meta.times import human_duration
from setpoint.view.actors import actor_of
from setpoint.view.history import cause_from_json
from setpoint.view.undo_plan import masked_plan, shown_object

_NOT_SETPOINT = "the server makes no plans to undo: it is not a Setpoint API server, or an older one"
_SIGNS = {"create": "+", "apply": "+", "update": "~", "delete": "-"}
_DONE = {"create": "created", "apply": "applied", "update": "updated", "delete": "deleted"}
_SHOWN = 5
"""Number of objects that are named in one line."""
_LOST = "What ran in containers, data in volumes, calls to other systems, and issued tokens are not undone."
_CASCADES = {"background": "Background", "foreground": "Foreground", "orphan": "Orphan"}

FLAGS = (
    switch("plan", help="Only show the plan."),
    switch("yes", "y", help="Do not ask for confirmation."),
    switch("replace", help="Delete and create objects of which immutable fields would have to be changed."),
    text("output", "o", help="Output format of the plan: json. Nothing is carried out.", choices=("json",)),
)


async def run(invocation: Invocation) -> None:
    if len(invocation.args) != 1 or not (invocation.args[0].isascii() and invocation.args[0].isdigit()):
        raise Failed("name the revision to undo: `setpoint undo 103018`; `setpoint history KIND/NAME` shows revisions")
    flags = invocation.flags
    if flags.cascade not in _CASCADES:
        raise Failed(f"--cascade must be one of {', '.join(_CASCADES)}")
    plan = await ask(
        invocation,
        {
            "revision": int(invocation.args[0]),
            "force": flags.force,
            "replace": flags.replace,
            "cascade": _CASCADES[flags.cascade],
        },
    )
    await carry_out(invocation, plan, _headline(invocation, plan), partly=False)


def _headline(invocation: Invocation, plan: dict[str, Any]) -> str:
    """Return what the write was, with its author; for a deletion, the user who asked for it and who completed it."""
    changed = [f"{each['object']}: {each['text']}" for each in plan.get("changes") or ()]
    what = "; ".join(changed[:_SHOWN]) + (f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else "")
    cause = cause_from_json(plan["cause"]) if plan.get("cause") else None
    ago = ""
    if cause is not None and cause.at:
        ago = f", {human_duration(max(0.0, invocation.io.clock.now().timestamp() - cause.at / 1000))} ago"
    author = actor_of(cause)
    if plan.get("requested"):
        asked = actor_of(cause_from_json(plan["requested"]))
        author = f"{asked}, completed by {author}" if asked != author else author
    return f"Revision {plan['revision']}{ago}, {author}: {what}"


# -- plans -------------------------------------------------------------------------------------------------------------


async def ask(invocation: Invocation, question: dict[str, Any]) -> dict[str, Any]:
    """Return the server's plan. Raise Failed and ApiError."""
    try:
        return await invocation.client.sender.json("POST", UNDO_PATH, body=question)
    except NotFound as error:
        if error.message.startswith("revision ") or (error.details or {}).get("name"):
            raise
        raise Failed(_NOT_SETPOINT) from None


async def carry_out(invocation: Invocation, plan: dict[str, Any], headline: str, *, partly: bool) -> None:
    """Show a plan and, after confirmation, send its requests. With `partly`, objects with conflicts are left as they
    are; otherwise nothing is done if there are any."""
    flags = invocation.flags
    if flags.output == "json":
        invocation.print(json.dumps(masked_plan(plan), indent=2, ensure_ascii=False))
        return
    if flags.output:
        raise Failed("--output must be json")
    try:
        lines = [escaped(headline), *_lines(plan)]
        steps, conflicts = list(plan["steps"]), list(plan["conflicts"])
    except (LookupError, TypeError) as error:
        raise Failed(f"the plan of the server cannot be read: {error!r}") from None
    invocation.print("\n".join(lines))
    if flags.plan:
        return
    if conflicts and not partly:
        count = "is a conflict" if len(conflicts) == 1 else "are conflicts"
        raise Failed(f"there {count}, so nothing was changed{_solutions(conflicts)}")
    if steps and not flags.yes and not await _agreed(invocation):
        raise Failed("nothing was changed; set --yes to carry out the plan without confirmation")
    errors: list[Exception] = []
    async for outcome in execute(invocation.client, invocation.io.clock, plan):
        if outcome.error is not None:
            errors.append(Failed(outcome.error) if isinstance(outcome.error, str) else outcome.error)
            continue
        done = f"{_DONE[outcome.step['action']]}{_revision(outcome)}"
        invocation.print(f"{escaped(shown_object(outcome.step['object']))} {done}")
    if conflicts:
        count = "one conflict remains" if len(conflicts) == 1 else f"{len(conflicts)} conflicts remain"
        errors.append(Failed(f"{count}{_solutions(conflicts)}"))
    raise_all(errors)


def _solutions(conflicts: list[Any]) -> str:
    """Return the options that resolve the conflicts; empty if there are none for some of them."""
    options = sorted({f"--{each['solvedBy']}" if each.get("solvedBy") else "" for each in conflicts})
    if "" in options:
        return ""
    return f"; {' and '.join(options)} would resolve {'it' if len(conflicts) == 1 else 'them'}"


def _lines(plan: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a plan: what is done, conflicts, warnings, and what is not done."""
    steps = plan["steps"]
    if steps:
        rows = [
            f"  {_SIGNS[each['action']]} {escaped(shown_object(each['object']))}\t{escaped(each['text'])}"
            for each in steps
        ]
        yield "To do:"
        yield from map(str.rstrip, align("\n".join(rows) + "\n", padding=2).splitlines())
    elif not plan["conflicts"]:
        yield "Nothing is to be done."
    if plan["conflicts"]:
        yield "Conflicts:"
        for each in plan["conflicts"]:
            solution = f" (--{each['solvedBy']})" if each.get("solvedBy") else ""
            yield f"  ! {escaped(shown_object(each['object']))}: {escaped(each['text'])}{solution}"
    if plan["warnings"]:
        yield "Warnings:"
        yield from (f"  {escaped(each)}" for each in plan["warnings"])
    reasons: dict[str, list[str]] = {}
    for each in plan["notDone"]:
        reasons.setdefault(each["text"], []).append(each["object"])
    if reasons:
        yield "Not done:"
    for reason, objects in reasons.items():
        named = ", ".join(objects[:_SHOWN]) + (f" and {len(objects) - _SHOWN} more" if len(objects) > _SHOWN else "")
        yield f"  {escaped(named)}: {escaped(reason)}"
    if steps:
        yield _LOST


async def _agreed(invocation: Invocation) -> bool:
    if not invocation.io.in_is_terminal:
        return False
    invocation.print("Type yes to carry out this plan: ", end="")
    invocation.flush()
    return (await invocation.io.read_line()).strip().lower() in (b"yes", b"y")


def _revision(outcome: StepOutcome) -> str:
    """Return the revision that a step has made, with which it can be undone."""
    revision = (outcome.answer.get("metadata") or {}).get("resourceVersion")
    return f" (revision {escaped(str(revision))})" if revision and outcome.step["action"] != "delete" else ""


COMMAND = Command(
    "Undo one write: show the plan, and carry it out after confirmation",
    run,
    (
        *FLAGS,
        switch("force", help="Set back fields also if they were changed again since."),
        text("cascade", default="background", help="How objects are deleted: background, foreground or orphan."),
    ),
    usage="REVISION [flags]",
    about="""
    Make a plan that undoes one write, as `git revert` does for a commit, show it, and carry it out after confirmation.
    The plan consists of ordinary requests with your own rights; the control loops do the rest. The undo is a new write
    with the reason "undo of REVISION": `setpoint why` shows it, and it can be undone.

    Fields of the spec, the data, labels and annotations are set back if they still have the value that the write gave
    them; otherwise there is a conflict and nothing is changed, unless --force is set. What the write created is
    deleted. What it deleted is created anew, with a new uid and without status: a namespace with its content, a custom
    resource definition with its objects. What a controller creates is left to that controller. The status is never set
    back.
    """,
    examples="""
    # Which write was it?
    setpoint history deployment/web

    # What would be done?
    setpoint undo 103018 --plan

    # Do it
    setpoint undo 103018
    """,
)
