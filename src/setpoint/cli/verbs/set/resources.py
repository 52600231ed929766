"""`set resources`."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.set.changing import (
    FLAGS,
    RECORDED,
    SELECTED,
    Obj,
    carry_out,
    check_all,
    check_local,
    items,
    matches,
    with_containers,
    with_pod_spec,
)  # fmt: skip
from setpoint.meta.quantity import QuantityError, canonical


async def run(call: Invocation) -> None:
    found = await items(call, call.args)
    check_local(call)
    check_all(call)
    if not (call.flags.limits or call.flags.requests):
        raise Failed("you must specify an update to requests or limits (in the form of --requests/--limits)")
    wanted = {key: amounts for key in ("limits", "requests") if (amounts := _amounts(getattr(call.flags, key)))}
    pattern = call.flags.containers
    missing: list[Exception] = []

    def change(spec: Obj) -> Obj:
        names = [one.get("name") or "" for key in ("initContainers", "containers") for one in spec.get(key) or ()]
        if not any(matches(name, pattern) for name in names):
            missing.append(Failed(f"error: unable to find container named {pattern}"))
            return spec
        return with_containers(spec, lambda one: _with(one, wanted) if matches(one.get("name") or "", pattern) else one)

    await carry_out(
        call,
        found,
        lambda obj: with_pod_spec(obj, change),
        "resource requirements updated",
        failed="failed to patch resources update to pod template ",
        errors=missing,
    )


def _with(container: Obj, wanted: dict[str, dict[str, str]]) -> Obj:
    resources = container.get("resources") or {}
    changed = {key: {**(resources.get(key) or {}), **amounts} for key, amounts in wanted.items()}
    return {**container, "resources": {**resources, **changed}}


def _amounts(given: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given.split(",") if given else ():
        parts = pair.split("=")
        if len(parts) != 2:
            raise Failed(f"invalid argument syntax {pair}, expected <resource>=<value>")
        try:
            found[parts[0]] = canonical(parts[1])
        except QuantityError as error:
            raise Failed(str(error)) from None
    return found


COMMAND = Command(
    "Update resource requests/limits on objects with pod templates",
    run,
    (
        *FLAGS,
        *SELECTED,
        *RECORDED,
        text("containers", "c", default="*", help="Which containers, by name; * stands for any letters."),
        text("limits", help="What a container may use at most: cpu=100m,memory=256Mi"),
        text("requests", help="What a container asks for: cpu=100m,memory=256Mi"),
    ),
    usage="(-f FILENAME | TYPE NAME)  ([--limits=LIMITS & --requests=REQUESTS]",
    examples="""
    setpoint set resources deployment web --requests=cpu=100m,memory=64Mi --limits=memory=128Mi

    # Only for one container
    setpoint set resources deployment web -c=nginx --limits=cpu=200m
    """,
)
