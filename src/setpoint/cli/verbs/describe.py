"""`describe`: print an object with everything that belongs to it."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.describe import DescribeContext, describe
from setpoint.cli.failures import raise_all
from setpoint.cli.flags import number, switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.output import AT
from setpoint.cli.resources import ALL_NAMESPACES, FILES, SELECTORS, Chosen, Selection, Target, choose, fetch
from setpoint.meta.errors import ApiError, NotFound


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    if not (invocation.args or flags.filename or flags.kustomize):
        invocation.usage(
            'You must specify the type of resource to describe. Use "setpoint api-resources" for a complete list of '
            "supported resources."
        )
    if flags.at:
        from setpoint.cli.past import read_at  # rarely needed

        read_at(invocation, flags.at)
    chosen = await choose(invocation, lists=True)
    errors: list[Exception] = []
    found = await fetch(invocation, chosen, errors)
    several = bool(errors) or len(found) > 1
    ctx = DescribeContext(
        invocation.client,
        invocation.io.clock,
        show_events=flags.show_events and (flags.given("show-events") or not several),
        chunk_size=flags.chunk_size,
    )
    if len(errors) == 1 and isinstance(errors[0], NotFound) and len(invocation.args) == 2:
        await _matching(invocation, chosen, errors[0], ctx)
        return
    texts: list[str] = []
    for target in found:
        try:
            texts.append(await _described(target, ctx))
        except ApiError as error:
            if str(error) not in map(str, errors):
                errors.append(error)
    invocation.print("\n\n".join(texts), end="")
    if not found and not errors:
        invocation.print_err(
            "No resources found" if flags.all_namespaces else f"No resources found in {invocation.namespace} namespace."
        )
    raise_all(errors)


async def _described(target: Target, ctx: DescribeContext) -> str:
    assert target.obj is not None
    return await describe(target.obj, target.resource, ctx)


async def _matching(invocation: Invocation, chosen: Chosen, missing: Exception, ctx: DescribeContext) -> None:
    """Describe the objects whose names begin with the given name, which does not exist itself."""
    named = chosen.targets[0]
    if "/" in invocation.args[0]:
        raise missing
    everything = Chosen([], [Selection(named.resource, named.namespace)], False)
    found = [target for target in await fetch(invocation, everything) if target.name.startswith(named.name)]
    if not found:
        raise missing
    for target in found:
        invocation.print(await _described(target, ctx))


COMMAND = Command(
    "Show details of a specific resource or group of resources",
    run,
    (
        *FILES,
        *SELECTORS[:1],
        *ALL_NAMESPACES,
        switch("show-events", default=True, help="If true, display events related to the described object."),
        number("chunk-size", default=500, help="Return large lists in chunks rather than all at once; 0 to disable."),
        AT,
    ),
    usage="(-f FILENAME | TYPE [NAME_PREFIX | -l label] | TYPE/NAME)",
    examples="""
    # A node, and a Pod
    setpoint describe node node-1
    setpoint describe pod/web

    # All Pods whose names begin with web
    setpoint describe pods web

    # As it was at half past twelve
    setpoint describe pod/web --at 12:30
    """,
)
