"""`rollout history`: list the revisions of a workload."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.describe.context import DescribeContext
from setpoint.cli.describe.pod_template import write_pod_template
from setpoint.cli.describe.writer import RawWriter
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import number
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.tabwriter import align
from setpoint.cli.verbs.rollout.chosen import FLAGS, group_kind, workloads
from setpoint.cli.verbs.rollout.revisions import Obj, Revision, revisions
from setpoint.cli.writing import OUTPUT, Results
from setpoint.meta.goformat import quote

KINDS = ("Deployment", "DaemonSet", "StatefulSet")


async def run(call: Invocation) -> None:
    if call.flags.revision < 0:
        raise Failed(f"revision must be a positive integer: {call.flags.revision}")
    errors: list[Exception] = []
    found = await workloads(call, errors)
    results = Results(call)
    for target in found:
        try:
            await _view(call, target, results)
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)


async def _view(call: Invocation, target: Target, results: Results) -> None:
    if target.resource.group != "apps" or target.resource.kind not in KINDS:
        raise Failed(f"no history viewer has been implemented for {quote(group_kind(target))}")
    wanted: int = call.flags.revision
    history = await revisions(call, target)
    if wanted and (history or results.asked):
        history = [one for one in history if one.number == wanted]
        if not history:
            raise Failed("unable to find the specified revision")
    if results.asked:
        for one in history:
            results.add(one.shown, "", typed=True)
        return
    with_revision = f"with revision #{wanted}" if wanted else ""
    text = pod_template_text(call, history[0].described) if wanted and history else _listed(history)
    results.add(target.obj or {}, f"{with_revision}\n{text}")


def _listed(history: list[Revision]) -> str:
    if not history:
        return "No rollout history found."
    return align("REVISION\tCHANGE-CAUSE\n" + "".join(f"{one.number}\t{one.cause}\n" for one in history))


def pod_template_text(call: Invocation, template: Obj) -> str:
    writer = RawWriter()
    write_pod_template(writer, DescribeContext(call.client, call.io.clock), template)
    return writer.text()


COMMAND = Command(
    "View rollout history",
    run,
    (*OUTPUT, *FLAGS, number("revision", help="See the details, including podTemplate of the revision specified")),
    usage="(TYPE NAME | TYPE/NAME) [flags]",
    examples="""
    # The revisions of a deployment
    setpoint rollout history deployment/web

    # One of them
    setpoint rollout history deployment/web --revision=3
    """,
)
