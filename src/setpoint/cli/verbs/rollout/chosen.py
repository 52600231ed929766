"""Which workloads a rollout command is about."""

from __future__ import annotations

from setpoint.cli.call import Call
from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag
from setpoint.cli.resources import FILES, SELECTORS, Target, choose, fetch

FLAGS: tuple[Flag, ...] = (*FILES, *SELECTORS[:1])


async def workloads(call: Call, errors: list[Exception]) -> list[Target]:
    """As they are on the server now. What goes wrong on the way is put among the errors."""
    if not (call.args or call.flags.filename or call.flags.kustomize):
        raise Failed("required resource not specified")
    return await fetch(call, await choose(call, lists=True), errors)


def tell_nothing_found(call: Call) -> None:
    call.tell(f"No resources found in {call.namespace} namespace.")


def group_kind(target: Target) -> str:
    """`Deployment.apps`."""
    kind, group = target.resource.kind, target.resource.group
    return f"{kind}.{group}" if group else kind
