"""Resolve the workloads of a rollout command."""

from __future__ import annotations

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, SELECTORS, Target, choose, fetch

FLAGS: tuple[Flag, ...] = (*FILES, *SELECTORS[:1])


async def workloads(call: Invocation, errors: list[Exception]) -> list[Target]:
    """Return the current workloads of the server. Failures are appended to `errors`."""
    if not (call.args or call.flags.filename or call.flags.kustomize):
        raise Failed("required resource not specified")
    return await fetch(call, await choose(call, lists=True), errors)


def tell_nothing_found(call: Invocation) -> None:
    call.print_err(f"No resources found in {call.namespace} namespace.")


def group_kind(target: Target) -> str:
    """Return a group and kind such as `Deployment.apps`."""
    kind, group = target.resource.kind, target.resource.group
    return f"{kind}.{group}" if group else kind
