"""`cordon` and `uncordon`: disable and enable scheduling on a node."""

from __future__ import annotations

from setpoint.cli.command import Command, Run
from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import SELECTORS, Selection, Target
from setpoint.cli.resources.choosing import Chosen, fetch, find_kind
from setpoint.cli.writing import DRY_RUN, DryRun, Results, dry_run
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError
from setpoint.meta.selectors import SelectorError, parse_labels

FLAGS: tuple[Flag, ...] = (*DRY_RUN, *SELECTORS[:1])


async def nodes(call: Invocation) -> list[Target]:
    """Return the named or matching nodes."""
    word = call.command.rpartition(" ")[2]
    if not call.args and not call.flags.given("selector"):
        call.usage(f"USAGE: {word} NODE [flags]")
    if call.args and call.flags.selector:
        call.usage("error: cannot specify both a node name and a --selector option")
    dry_run(call)
    pods = getattr(call.flags, "pod_selector", "")
    if pods:
        try:
            parse_labels(pods)
        except SelectorError:
            raise Failed("--pod-selector=<pod_selector> must be a valid label selector") from None
    named = [await _named(call, one) for one in call.args]
    matching = [Selection(builtin("nodes"), "", call.flags.selector)] if call.flags.selector else []
    return await fetch(call, Chosen(named, matching, False))


async def _named(call: Invocation, word: str) -> Target:
    kind, slash, name = word.partition("/")
    if not slash:
        return Target(builtin("nodes"), "", word)
    found = await find_kind(call, kind)
    if (found.group, found.plural) != ("", "nodes"):
        raise Failed(
            f'error: expected resource of type node, got "{found.group}/{found.version}, Resource={found.plural}"'
        )
    return Target(found, "", name)


async def set_schedulable(call: Invocation, found: list[Target], wanted: bool) -> None:
    """Update each node and print the result; a failure does not stop the others."""
    dry = dry_run(call)
    results = Results(call, dry)
    word = "uncordon" if wanted else "cordon"
    for target in found:
        node = target.obj or {}
        if bool((node.get("spec") or {}).get("unschedulable")) != wanted:
            results.add(node, f"already {word}ed")
            continue
        if dry is not DryRun.CLIENT:
            patch = {"spec": {"unschedulable": None if wanted else True}}
            try:
                await call.client.patch(
                    target.resource, target.name, patch, kind="strategic", dry_run=dry is DryRun.SERVER
                )
            except ApiError as error:
                call.print_err(f'error: unable to {word} node "{target.name}": {error.message}')
                continue
        results.add(node, f"{word}ed")


def _run(wanted: bool) -> Run:
    async def run(call: Invocation) -> None:
        await set_schedulable(call, await nodes(call), wanted)

    return run


CORDON = Command(
    "Mark node as unschedulable",
    _run(False),
    FLAGS,
    usage="NODE",
    examples="""
    setpoint cordon node-1
    """,
)
UNCORDON = Command(
    "Mark node as schedulable",
    _run(True),
    FLAGS,
    usage="NODE",
    examples="""
    setpoint uncordon node-1
    """,
)
