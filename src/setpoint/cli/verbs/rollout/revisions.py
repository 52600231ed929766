"""The revisions of a workload: ReplicaSets of a deployment, ControllerRevisions of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.verbs.rollout.status import REVISION
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError
from setpoint.meta.selectors import format_labels

Obj = dict[str, Any]
_CHANGE_CAUSE = "kubernetes.io/change-cause"


class Revision(NamedTuple):
    number: int
    kept: Obj
    """The stored object of the revision."""
    shown: Obj
    """The object that `-o` prints: the ReplicaSet, or the workload at that revision."""

    @property
    def template(self) -> Obj:
        found: Obj = self.shown["spec"]["template"]
        return found

    @property
    def cause(self) -> str:
        return _annotations(self.kept).get(_CHANGE_CAUSE) or "<none>"

    @property
    def described(self) -> Obj:
        """Return the template with its change cause as an annotation, if it is known."""
        if self.cause == "<none>" or self.kept["kind"] != "ReplicaSet":
            return self.template
        meta = self.template.get("metadata") or {}
        annotations = {**(meta.get("annotations") or {}), _CHANGE_CAUSE: self.cause}
        return {**self.template, "metadata": {**meta, "annotations": annotations}}


async def revisions(call: Invocation, target: Target) -> list[Revision]:
    """Return the revisions, the oldest first. `target` must be of a kind that has revisions."""
    workload = target.obj or {}
    kind = target.resource.kind
    plural = "replicasets" if kind == "Deployment" else "controllerrevisions"
    selector = format_labels((workload.get("spec") or {}).get("selector"))
    try:
        kept = await call.client.list(builtin(plural, "apps"), target.namespace, label_selector=selector)
    except ApiError as error:
        what = "failed to retrieve replica sets from deployment" if kind == "Deployment" else (
            f"unable to find history controlled by {kind}"
        )  # fmt: skip
        raise Failed(f"{what} {target.name}: {error.message}") from None
    own = [one for one in kept.items if _is_controlled_by(one, workload["metadata"]["uid"])]
    if kind == "Deployment":
        numbered = {_number(one): Revision(_number(one), one, one) for one in own if _number(one) >= 0}
    else:
        numbered = {
            int(one.get("revision", 0)): Revision(int(one.get("revision", 0)), one, _restored(workload, one))
            for one in own
        }
    return [numbered[number] for number in sorted(numbered)]


def same_template(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
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
