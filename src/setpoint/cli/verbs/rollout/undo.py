"""`rollout undo`: roll back to an earlier revision."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import number
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.verbs.rollout.chosen import FLAGS, group_kind, workloads
from setpoint.cli.verbs.rollout.history import KINDS, pod_template_text
from setpoint.cli.verbs.rollout.revisions import Obj, Revision, revisions, same_template
from setpoint.cli.writing import DRY_RUN, OUTPUT, DryRun, Results, dry_run
from setpoint.cli.writing.annotation import ANNOTATION
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import quote

_KEPT = (
    ANNOTATION,
    "deployment.kubernetes.io/revision",
    "deployment.kubernetes.io/revision-history",
    "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas",
    "deprecated.deployment.rollback.to",
)
"""Annotations of the Deployment itself, not of its revisions."""


async def run(call: Invocation) -> None:
    dry = dry_run(call)
    errors: list[Exception] = []
    found = await workloads(call, errors)
    results = Results(call, dry)
    for target in found:
        try:
            results.add(target.obj or {}, await _undone(call, target, dry), typed=True)
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)


async def _undone(call: Invocation, target: Target, dry: DryRun) -> str:
    """Roll back and return the description of the result."""
    workload = target.obj or {}
    if ANNOTATION in (workload["metadata"].get("annotations") or {}):
        call.print_err(
            f"Warning: resource {target.resource.plural}/{target.name} was previously managed with 'setpoint apply'. "
            f"Rolling back will not update the {ANNOTATION} annotation, which may cause unexpected behavior on future "
            "'setpoint apply' operations. Consider using 'setpoint apply' with your previous configuration file "
            "instead."
        )
    if target.resource.group != "apps" or target.resource.kind not in KINDS:
        raise Failed(f"no rollbacker has been implemented for {quote(group_kind(target))}")
    wanted: int = call.flags.to_revision
    of_deployment = target.resource.kind == "Deployment"
    revision = _found(await revisions(call, target) if wanted >= 0 else [], wanted, target.name, of_deployment)
    if dry is DryRun.CLIENT:
        text = pod_template_text(call, revision.template)
        return text if of_deployment else f"will roll back to {text}"
    if workload["spec"].get("paused"):
        raise Failed(
            "you cannot rollback a paused deployment; resume it first with 'setpoint rollout resume' and try again"
        )
    if same_template(revision.template, workload["spec"]["template"]):
        return f"skipped rollback (current template already matches revision {wanted})"
    try:
        patch = _deployment_patch(workload, revision) if of_deployment else revision.kept.get("data")
        await call.client.patch(
            target.resource,
            target.name,
            patch,
            target.namespace,
            kind="json" if of_deployment else "strategic",
            dry_run=dry is DryRun.SERVER,
        )
    except ApiError as error:
        raise Failed(f"failed restoring revision {wanted}: {error.message}") from None
    return "rolled back"


def _found(history: list[Revision], wanted: int, name: str, of_deployment: bool) -> Revision:
    """Return the revision with this number; 0 means the previous one."""
    if wanted:
        for one in history:
            if one.number == wanted:
                return one
        raise Failed(f"unable to find specified revision {wanted} in history")
    if len(history) < 2:
        raise Failed(
            f"no rollout history found for deployment {quote(name)}"
            if of_deployment
            else "no last revision to roll back to"
        )
    return history[-2]


def _deployment_patch(deployment: Obj, revision: Revision) -> list[Obj]:
    meta = revision.template.get("metadata") or {}
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != "pod-template-hash"}
    own = deployment["metadata"].get("annotations") or {}
    of_revision = revision.kept["metadata"].get("annotations") or {}
    annotations = {key: own[key] for key in _KEPT if key in own}
    annotations |= {key: value for key, value in of_revision.items() if key not in _KEPT}
    template = {**revision.template, "metadata": {**meta, "labels": labels}}
    return [
        {"op": "replace", "path": "/spec/template", "value": template},
        {"op": "replace", "path": "/metadata/annotations", "value": annotations},
    ]


COMMAND = Command(
    "Undo a previous rollout",
    run,
    (*OUTPUT, *FLAGS, *DRY_RUN, number("to-revision", help="The revision to go back to; 0: the one before the last.")),
    usage="(TYPE NAME | TYPE/NAME) [flags]",
    examples="""
    # Back to what was before
    setpoint rollout undo deployment/web

    # Back to a revision of `rollout history`
    setpoint rollout undo daemonset/logs --to-revision=3
    """,
)
