"""`set selector`: set the selector of Services."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.budget import label_selector
from setpoint.cli.verbs.set.changing import FLAGS, RECORDED, Obj, carry_out, items


async def run(call: Invocation) -> None:
    if not call.args:
        raise Failed("one selector is required")
    selector = label_selector(call.args[-1])
    version = call.flags.resource_version

    def change(obj: Obj) -> Obj:
        if (obj.get("apiVersion"), obj.get("kind")) != ("v1", "Service"):
            raise Failed("setting a selector is only supported for Services")
        if expressions := selector.get("matchExpressions"):
            shown = " ".join(
                f"{{{one['key']} {one['operator']} [{' '.join(one.get('values') or ())}]}}" for one in expressions
            )
            raise Failed(f"match expression [{shown}] not supported on this object")
        new = {**obj, "spec": {**(obj.get("spec") or {}), "selector": selector.get("matchLabels") or {}}}
        return {**new, "metadata": {**new["metadata"], "resourceVersion": version}} if version else new

    found = await items(call, call.args[:-1])
    if version:
        # The patch must contain the requested version.
        found = [one.with_object(_unversioned(one.obj or {})) for one in found]
    for one in found:
        change(one.obj or {})
    await carry_out(call, found, change, "selector updated", even_unchanged=True)


def _unversioned(obj: Obj) -> Obj:
    meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": meta}


COMMAND = Command(
    "Set the selector on a resource",
    run,
    (
        *(flag._replace(default=True) if flag.name == "recursive" else flag for flag in FLAGS),
        *RECORDED,
        text("resource-version", help="Only if the object is still at this version."),
    ),
    usage="(-f FILENAME | TYPE NAME) EXPRESSIONS [--resource-version=version]",
    about="The new selector replaces the old one. Only services can be given another one.",
    examples="""
    setpoint set selector service web app=web,tier=front
    """,
)
