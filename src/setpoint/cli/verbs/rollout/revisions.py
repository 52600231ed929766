"""`rollout history` and `rollout undo`: list the revisions of a workload, and roll back to an earlier one.

The revisions are ReplicaSets of a Deployment, and ControllerRevisions of the other workloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from setpoint.cli.command import Command
from setpoint.cli.describe.context import DescribeContext, RawWriter
from setpoint.cli.describe.pods import write_pod_template
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import number
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.tabwriter import align
from setpoint.cli.verbs.rollout.status import FLAGS, REVISION, group_kind, workloads
from setpoint.cli.writing import DRY_RUN, OUTPUT, DryRun, Results, dry_run
from setpoint.cli.writing.annotation import ANNOTATION
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import format_labels

_CHANGE_CAUSE = "kubernetes.io/change-cause"
_KINDS = ("Deployment", "DaemonSet", "StatefulSet")
_DEPLOYMENT_ANNOTATIONS = (
    ANNOTATION,
    "deployment.kubernetes.io/revision",
    "deployment.kubernetes.io/revision-history",
    "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas",
    "deprecated.deployment.rollback.to",
)
"""Annotations of the Deployment itself, not of its revisions."""


class Revision(NamedTuple):
    number: int
    stored: Obj
    """The stored object of the revision."""
    shown: Obj
    """The object that `-o` prints: the ReplicaSet, or the workload at that revision."""

    @property
    def template(self) -> Obj:
        found: Obj = self.shown["spec"]["template"]
        return found

    @property
    def cause(self) -> str:
        return _annotations(self.stored).get(_CHANGE_CAUSE) or "<none>"

    @property
    def described(self) -> Obj:
        """Return the template with its change cause as an annotation, if it is known."""
        if self.cause == "<none>" or self.stored["kind"] != "ReplicaSet":
            return self.template
        meta = self.template.get("metadata") or {}
        annotations = {**(meta.get("annotations") or {}), _CHANGE_CAUSE: self.cause}
        return {**self.template, "metadata": {**meta, "annotations": annotations}}


async def revisions(invocation: Invocation, target: Target) -> list[Revision]:
    """Return the revisions, the oldest first. `target` must be of a kind that has revisions."""
    workload = target.obj or {}
    kind = target.resource.kind
    plural = "replicasets" if kind == "Deployment" else "controllerrevisions"
    selector = format_labels((workload.get("spec") or {}).get("selector"))
    try:
        stored = await invocation.client.list(builtin(plural, "apps"), target.namespace, label_selector=selector)
    except ApiError as error:
        what = (
            "failed to retrieve replica sets from deployment"
            if kind == "Deployment"
            else (f"unable to find history controlled by {kind}")
        )
        raise Failed(f"{what} {target.name}: {error.message}") from None
    own = [one for one in stored.items if _is_controlled_by(one, workload["metadata"]["uid"])]
    if kind == "Deployment":
        numbered = {_number(one): Revision(_number(one), one, one) for one in own if _number(one) >= 0}
    else:
        numbered = {
            int(one.get("revision", 0)): Revision(int(one.get("revision", 0)), one, _restored(workload, one))
            for one in own
        }
    return [numbered[number] for number in sorted(numbered)]


def _same_template(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return _unhashed(left) == _unhashed(right)


def _unhashed(template: Mapping[str, Any]) -> Obj:
    meta = dict(template.get("metadata") or {})
    meta.pop("creationTimestamp", None)
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != "pod-template-hash"}
    return {**template, "metadata": {**meta, "labels": labels}}


def _restored(workload: Obj, revision: Obj) -> Obj:
    """Return the workload with the template of the revision, which replaces the current one completely."""
    template = dict(((revision.get("data") or {}).get("spec") or {}).get("template") or {})
    template.pop("$patch", None)
    return {**workload, "spec": {**workload["spec"], "template": template}}


def _is_controlled_by(obj: Obj, uid: str) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def _number(replica_set: Obj) -> int:
    """Return the revision number; -1 if it is invalid."""
    given = _annotations(replica_set).get(REVISION, "0")
    return int(given) if given.isascii() and given.isdigit() else -1


def _annotations(obj: Obj) -> Obj:
    return obj["metadata"].get("annotations") or {}


async def show_history(invocation: Invocation) -> None:
    if invocation.flags.revision < 0:
        raise Failed(f"revision must be a positive integer: {invocation.flags.revision}")
    errors: list[Exception] = []
    found = await workloads(invocation, errors)
    results = Results(invocation)
    for target in found:
        try:
            await _view(invocation, target, results)
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)


async def _view(invocation: Invocation, target: Target, results: Results) -> None:
    if target.resource.group != "apps" or target.resource.kind not in _KINDS:
        raise Failed(f"no history viewer has been implemented for {quote(group_kind(target))}")
    wanted: int = invocation.flags.revision
    history = await revisions(invocation, target)
    if wanted and (history or results.has_format):
        history = [one for one in history if one.number == wanted]
        if not history:
            raise Failed("unable to find the specified revision")
    if results.has_format:
        for one in history:
            results.add(one.shown, "", typed=True)
        return
    with_revision = f"with revision #{wanted}" if wanted else ""
    text = _pod_template_text(invocation, history[0].described) if wanted and history else _listed(history)
    results.add(target.obj or {}, f"{with_revision}\n{text}")


def _listed(history: list[Revision]) -> str:
    if not history:
        return "No rollout history found."
    return align("REVISION\tCHANGE-CAUSE\n" + "".join(f"{one.number}\t{one.cause}\n" for one in history))


def _pod_template_text(invocation: Invocation, template: Obj) -> str:
    writer = RawWriter()
    write_pod_template(writer, DescribeContext(invocation.client, invocation.io.clock), template)
    return writer.text()


HISTORY = Command(
    "View rollout history",
    show_history,
    (*OUTPUT, *FLAGS, number("revision", help="See the details, including podTemplate of the revision specified")),
    usage="(TYPE NAME | TYPE/NAME) [flags]",
    examples="""
    # The revisions of a deployment
    setpoint rollout history deployment/web

    # One of them
    setpoint rollout history deployment/web --revision=3
    """,
)


async def undo(invocation: Invocation) -> None:
    dry = dry_run(invocation)
    errors: list[Exception] = []
    found = await workloads(invocation, errors)
    results = Results(invocation, dry)
    for target in found:
        try:
            results.add(target.obj or {}, await _undone(invocation, target, dry), typed=True)
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)


async def _undone(invocation: Invocation, target: Target, dry: DryRun) -> str:
    """Roll back and return the description of the result."""
    workload = target.obj or {}
    if ANNOTATION in (workload["metadata"].get("annotations") or {}):
        invocation.print_err(
            f"Warning: resource {target.resource.plural}/{target.name} was previously managed with 'setpoint apply'. "
            f"Rolling back will not update the {ANNOTATION} annotation, which may cause unexpected behavior on future "
            "'setpoint apply' operations. Consider using 'setpoint apply' with your previous configuration file "
            "instead."
        )
    if target.resource.group != "apps" or target.resource.kind not in _KINDS:
        raise Failed(f"no rollbacker has been implemented for {quote(group_kind(target))}")
    wanted: int = invocation.flags.to_revision
    of_deployment = target.resource.kind == "Deployment"
    revision = _found(await revisions(invocation, target) if wanted >= 0 else [], wanted, target.name, of_deployment)
    if dry is DryRun.CLIENT:
        text = _pod_template_text(invocation, revision.template)
        return text if of_deployment else f"will roll back to {text}"
    if workload["spec"].get("paused"):
        raise Failed(
            "you cannot rollback a paused deployment; resume it first with 'setpoint rollout resume' and try again"
        )
    if _same_template(revision.template, workload["spec"]["template"]):
        return f"skipped rollback (current template already matches revision {wanted})"
    try:
        patch = _deployment_patch(workload, revision) if of_deployment else revision.stored.get("data")
        await invocation.client.patch(
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
    of_revision = revision.stored["metadata"].get("annotations") or {}
    annotations = {key: own[key] for key in _DEPLOYMENT_ANNOTATIONS if key in own}
    annotations |= {key: value for key, value in of_revision.items() if key not in _DEPLOYMENT_ANNOTATIONS}
    template = {**revision.template, "metadata": {**meta, "labels": labels}}
    return [
        {"op": "replace", "path": "/spec/template", "value": template},
        {"op": "replace", "path": "/metadata/annotations", "value": annotations},
    ]


UNDO = Command(
    "Undo a previous rollout",
    undo,
    (*OUTPUT, *FLAGS, *DRY_RUN, number("to-revision", help="The revision to go back to; 0: the one before the last.")),
    usage="(TYPE NAME | TYPE/NAME) [flags]",
    examples="""
    # Back to what was before
    setpoint rollout undo deployment/web

    # Back to a revision of `rollout history`
    setpoint rollout undo daemonset/logs --to-revision=3
    """,
)
