"""`set selector`: set the selector of Services."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.plain import label_selector
from setpoint.cli.verbs.set.changing import FLAGS, RECORDED, carry_out, items
from setpoint.meta.objects import Obj


async def run(invocation: Invocation) -> None:
    if not invocation.args:
        raise Failed("one selector is required")
    selector = label_selector(invocation.args[-1])
    version = invocation.flags.resource_version

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

    found = await items(invocation, invocation.args[:-1])
    if version:
        # The patch must contain the requested version.
        found = [one.with_object(_unversioned(one.obj or {})) for one in found]
    for one in found:
        change(one.obj or {})
    await carry_out(invocation, found, change, "selector updated", even_unchanged=True)


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
