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
from setpoint.client.current_run import current_run
from setpoint.client.run import PersonalRun
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.times import human_duration
from setpoint.view.actors import actor_of
from setpoint.view.history import cause_from_json

PATH = "/setpoint/v1/undo"
_NOT_SETPOINT = "the server makes no plans to undo: it is not a Setpoint API server, or an older one"
_SIGNS = {"create": "+", "apply": "+", "update": "~", "delete": "-"}
_DONE = {"create": "created", "apply": "applied", "update": "updated", "delete": "deleted"}
_METHODS = ("POST", "PATCH", "DELETE")
_TIMEOUT = 60.0
"""Seconds for which a request is repeated that must wait for an earlier one of the plan to take effect."""
_PAUSE = 0.25
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
    """Return what the write was, with its author."""
    changed = [f"{each['object']}: {each['text']}" for each in plan.get("changes") or ()]
    what = "; ".join(changed[:_SHOWN]) + (f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else "")
    cause = cause_from_json(plan["cause"]) if plan.get("cause") else None
    ago = ""
    if cause is not None and cause.at:
        ago = f", {human_duration(max(0.0, invocation.io.clock.now().timestamp() - cause.at / 1000))} ago"
    return f"Revision {plan['revision']}{ago}, {actor_of(cause)}: {what}"


# -- plans -------------------------------------------------------------------------------------------------------------


async def ask(invocation: Invocation, question: dict[str, Any]) -> dict[str, Any]:
    """Return the server's plan. Raise Failed and ApiError."""
    try:
        return await invocation.client.sender.json("POST", PATH, body=question)
    except NotFound as error:
        if error.message.startswith("revision ") or (error.details or {}).get("name"):
            raise
        raise Failed(_NOT_SETPOINT) from None


async def carry_out(invocation: Invocation, plan: dict[str, Any], headline: str, *, partly: bool) -> None:
    """Show a plan and, after confirmation, send its requests. With `partly`, objects with conflicts are left as they
    are; otherwise nothing is done if there are any."""
    flags = invocation.flags
    if flags.output == "json":
        invocation.print(json.dumps(_masked(plan), indent=2, ensure_ascii=False))
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
    errors = await _execute(invocation, steps, str(plan["reason"]))
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
            f"  {_SIGNS[each['action']]} {escaped(_shown(each['object']))}\t{escaped(each['text'])}" for each in steps
        ]
        yield "To do:"
        yield from map(str.rstrip, align("\n".join(rows) + "\n", padding=2).splitlines())
    else:
        yield "Nothing is to be done."
    if plan["conflicts"]:
        yield "Conflicts:"
        for each in plan["conflicts"]:
            solution = f" (--{each['solvedBy']})" if each.get("solvedBy") else ""
            yield f"  ! {escaped(_shown(each['object']))}: {escaped(each['text'])}{solution}"
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


def _shown(ref: dict[str, Any]) -> str:
    kind = ref["kind"].lower()
    name = f"{kind}.{ref['group']}/{ref['name']}" if ref["group"] else f"{kind}/{ref['name']}"
    return f"{name} ({ref['namespace']})" if ref["namespace"] else name


def _masked(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan without the values of Secrets."""

    def step(found: dict[str, Any]) -> dict[str, Any]:
        ref = found["object"]
        if (ref["group"], ref["plural"]) != ("", "secrets"):
            return found
        return {**found, "request": {**found["request"], "body": "***"}}

    return {**plan, "steps": [step(each) for each in plan["steps"]]}


async def _agreed(invocation: Invocation) -> bool:
    if not invocation.io.in_is_terminal:
        return False
    invocation.print("Type yes to carry out this plan: ", end="")
    invocation.flush()
    return (await invocation.io.read_line()).strip().lower() in (b"yes", b"y")


# -- requests ----------------------------------------------------------------------------------------------------------


async def _execute(invocation: Invocation, steps: list[dict[str, Any]], reason: str) -> list[Exception]:
    """Send the requests one after the other, and return the errors. A step is left out if it needs one that failed."""
    errors: list[Exception] = []
    uids: dict[int, str] = {}
    token = current_run.set(PersonalRun(reason))
    try:
        for number, step in enumerate(steps):
            shown = _shown(step["object"])
            links = step.get("links") or ()
            if any(each["step"] not in uids for each in links):
                errors.append(Failed(f"{shown}: left out, because what it depends on could not be created"))
                continue
            request = step["request"]
            for link in links:
                _set(request["body"], link["place"], uids[link["step"]])
            try:
                answer = await _send(invocation, request, step.get("awaits") or "")
            except ApiError as error:
                error.message = f"{shown}: {error.message}"
                errors.append(error)
                continue
            uids[number] = (answer.get("metadata") or {}).get("uid") or ""
            invocation.print(f"{escaped(shown)} {_DONE[step['action']]}{_revision(step, answer)}")
    finally:
        current_run.reset(token)
    return errors


def _revision(step: dict[str, Any], answer: dict[str, Any]) -> str:
    """Return the revision that a step has made, with which it can be undone."""
    revision = (answer.get("metadata") or {}).get("resourceVersion")
    return f" (revision {escaped(str(revision))})" if revision and step["action"] != "delete" else ""


def _set(body: Any, place: list[Any], uid: str) -> None:
    for part in place[:-1]:
        body = body[part]
    body[place[-1]] = uid


async def _send(invocation: Invocation, request: dict[str, Any], awaits: str) -> dict[str, Any]:
    method, path = request["method"], str(request["path"])
    if method not in _METHODS or not path.startswith(("/api/", "/apis/")):
        raise Failed(f"the plan contains a request that is not one to an object: {method} {path}")
    clock = invocation.io.clock
    end = clock.monotonic() + _TIMEOUT
    while True:
        try:
            return await invocation.client.sender.json(
                method, path, str(request["query"]), request["body"], content_type=str(request["contentType"])
            )
        except ApiError as error:
            if error.reason != awaits or clock.monotonic() >= end:
                raise
        await clock.sleep(_PAUSE)


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
