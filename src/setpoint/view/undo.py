"""Plans that undo one write, or restore objects as they were: ordinary requests, what prevents them, and what is not
done.

A plan changes the desired state only; the control loops do the rest. It is made from values alone: the client executes
it under its own rights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from setpoint.meta.objects import Obj, ObjView
from setpoint.view.changes import ABSENT, Path, path_text, short_value
from setpoint.view.desired_state import (
    SECRET_PARTS,
    SetBack,
    change_text,
    desired,
    immutable_changes,
    is_system_annotation,
    patch_between,
    set_back,
)
from setpoint.view.made_anew import Present, claim_of_volume, controller_of, is_of_system, left_to, made_anew
from setpoint.view.undo_plan import APPLY_PATCH, JSON_PATCH, Conflict, ObjectRef, Options, Plan, Step

_FIRST = (
    "namespaces customresourcedefinitions priorityclasses runtimeclasses storageclasses csidrivers serviceaccounts "
    "clusterroles roles clusterrolebindings rolebindings limitranges networkpolicies configmaps secrets "
    "persistentvolumes persistentvolumeclaims services endpoints endpointslices"
)
_LAST = (
    "controllerrevisions replicationcontrollers replicasets statefulsets daemonsets deployments jobs cronjobs pods "
    "poddisruptionbudgets horizontalpodautoscalers ingresses resourcequotas apiservices validatingadmissionpolicies "
    "validatingadmissionpolicybindings mutatingwebhookconfigurations validatingwebhookconfigurations"
)
_RANKS = {
    **{plural: rank for rank, plural in enumerate(_FIRST.split())},
    **{plural: 100 + rank for rank, plural in enumerate(_LAST.split())},
}
"""The order in which objects are written; other kinds come between the two lists."""
_SYSTEM_FIELDS = {
    ("", "pods"): (("spec", "nodeName"),),
    ("", "persistentvolumeclaims"): (("spec", "volumeName"),),
    ("", "persistentvolumes"): (("spec", "claimRef"),),
}
"""Fields of a spec that components write, not people."""
_ADDRESSES = (("spec", "clusterIP"), ("spec", "clusterIPs"), ("spec", "healthCheckNodePort"))


class _Past(NamedTuple):
    """A deleted object that is to be created anew."""

    ref: ObjectRef
    obj: ObjView
    after_deletion: bool = False
    """Whether the plan deletes the present object of this name first."""


class Planner:
    """Collects what has to be done, object by object. `plan` returns the requests in their order."""

    def __init__(self, present: Present, options: Options) -> None:
        self._present = present
        self._options = options
        self._created: dict[tuple[str, str, str, str], _Past] = {}
        self._updated: list[Step] = []
        self._deleted: list[Step] = []
        self._replaced: list[Step] = []
        self.result = Plan()
        """The plan, complete after `planning`."""

    # -- what has to be done -------------------------------------------------------------------------------------------

    def note(self, what: str, why: str) -> None:
        """Note that something is not done."""
        self.result.not_done.append((what, why))

    def warn(self, text: str) -> None:
        if text not in self.result.warnings:
            self.result.warnings.append(text)

    def update(self, ref: ObjectRef, before: ObjView, after: ObjView, now: ObjView | None) -> None:
        """Set back what a write has changed from `before` to `after`."""
        if now is None:
            self._conflict(ref, "was deleted since")
            return
        if _uid(now) != _uid(after) and not self._options.force:
            self._conflict(ref, "another object of this name has been created since", "force")
            return
        noted = len(self.result.not_done)
        self._left_as_they_are(ref, before, after)
        found = set_back(before, after, now, force=self._options.force, system=_system_fields(ref, before, now))
        for left in found.left:
            self.note(f"{path_text(left)} of {ref.shown}", "a component of the system writes it")
        for path, old, current in found.conflicts:
            was = value_texts(ref, path, old, current)
            self._conflict(ref, f"{path_text(path)} {was}", "force")
        for done in found.done:
            if not is_system_annotation(done):
                self.note(f"{path_text(done)} of {ref.shown}", "it has its former value already")
        if not found.conflicts:
            self._set_back(ref, before, now, found)
        if not found.changes and not found.conflicts and noted == len(self.result.not_done):
            unchanged = desired(before) == desired(after)
            reason = "the write did not change the desired state" if unchanged else "programs maintain what it changed"
            self.note(ref.shown, reason)

    def restore(self, ref: ObjectRef, before: ObjView, now: ObjView) -> bool:
        """Give an existing object the desired state that it had; return False if it has it."""
        found = set_back(before, now, now, system=_system_fields(ref, before, now))
        if not any(not is_system_annotation(each.path) for each in found.changes):
            return False
        if reason := self._left_to(ref, now):
            self.note(ref.shown, reason)
            return True
        self._set_back(ref, before, now, found)
        return True

    def create(self, ref: ObjectRef, obj: ObjView, now: ObjView | None = None) -> None:
        """Create a deleted object anew; `now` is the present object of this name, if there is one."""
        if now is not None and (now.get("metadata") or {}).get("deletionTimestamp"):
            waits = ", ".join((now["metadata"].get("finalizers") or [])[:5])
            waits = f" (it waits for {waits})" if waits else ""
            self._conflict(ref, f"is still being deleted{waits}; try again when it is gone")
        elif now is not None:
            self.note(ref.shown, "it exists again")
        else:
            self._created[_key(ref)] = _Past(ref, obj)

    def delete(self, ref: ObjectRef, created: ObjView, now: ObjView | None) -> None:
        """Delete an object that a write has created."""
        if now is None:
            self.note(ref.shown, "it no longer exists")
        elif _uid(now) != _uid(created):
            self.note(ref.shown, "another object of this name exists now")
        elif now["metadata"].get("deletionTimestamp"):
            self.note(ref.shown, "it is being deleted already")
        else:
            if desired(created) != desired(now):
                self.warn(f"{ref.shown} was changed since it was created")
            self._delete(ref, now)

    def prune(self, ref: ObjectRef, now: ObjView) -> None:
        """Delete an object that did not exist then, if the user wants that."""
        if now["metadata"].get("deletionTimestamp"):
            return
        if reason := self._left_to(ref, now):
            self.note(ref.shown, reason)
        elif ref.plural == "nodes":
            self.note(ref.shown, "its kubelet would register it again")
        elif is_of_system(ref.group, ref.plural, now):
            self.note(ref.shown, "it is a part of the system")
        elif not self._options.prune:
            self.note(ref.shown, "it did not exist then; --prune deletes it")
        else:
            self._delete(ref, now)

    def unreadable(self, ref: ObjectRef) -> None:
        self.note(ref.shown, "it cannot be read: the key that it was encrypted with is missing")

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _conflict(self, ref: ObjectRef, text: str, solved_by: str = "") -> None:
        self.result.conflicts.append(Conflict(ref, text, solved_by))

    def _left_as_they_are(self, ref: ObjectRef, before: ObjView, after: ObjView) -> None:
        if before.get("status") != after.get("status"):
            self.note(f"status of {ref.shown}", "the status is what was observed")
        old, new = before.get("metadata") or {}, after.get("metadata") or {}
        for name in ("finalizers", "ownerReferences"):
            if (old.get(name) or []) != (new.get(name) or []):
                self.note(f"metadata.{name} of {ref.shown}", "only the desired state is set back")

    def _set_back(self, ref: ObjectRef, before: ObjView, now: ObjView, found: SetBack) -> None:
        """Add the update, or what is done instead if the fields cannot be changed."""
        if not found.changes:
            return
        fixed = immutable_changes(ref.group, ref.plural, now, found.changes)
        if fixed and not self._options.replace:
            paths = ", ".join(path_text(each.path) for each in fixed)
            self._conflict(ref, f"{paths} cannot be changed in an existing object", "replace")
            return
        if fixed:
            self._replaced.append(self._deletion(ref, now))
            self._created[_key(ref)] = _Past(ref, before, after_deletion=True)
            return
        if now["metadata"].get("deletionTimestamp"):
            self._conflict(ref, "is being deleted")
            return
        if owner := controller_of(now):
            self.warn(f"{ref.shown} belongs to {owner['kind'].lower()}/{owner['name']}, which may change it again")
        shown = [each for each in found.changes if not is_system_annotation(each.path)] or found.changes
        text = ", ".join(change_text(each, secret=ref.is_secret) for each in shown[:5])
        if len(shown) > 5:
            text += f" and {len(shown) - 5} more"
        patch = patch_between(now, found.target)
        self._updated.append(Step("update", ref, "PATCH", ref.path, patch, text, JSON_PATCH))

    def _delete(self, ref: ObjectRef, now: ObjView) -> None:
        self._deleted.append(self._deletion(ref, now))

    def _deletion(self, ref: ObjectRef, now: ObjView) -> Step:
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": _uid(now)},
            "propagationPolicy": self._options.cascade,
        }
        texts = {"namespaces": "with everything in it", "customresourcedefinitions": "with all its objects"}
        return Step("delete", ref, "DELETE", ref.path, options, texts.get(ref.plural, ""))

    def _left_to(self, ref: ObjectRef, obj: ObjView) -> str:
        """Return why an object is left out: a component creates or removes it; empty if none does."""
        return left_to(ref.group, ref.plural, obj, self._exists)

    def _exists(self, api_version: str, kind: str, namespace: str, name: str) -> ObjView | None:
        """Return the object if it exists or the plan creates it."""
        group = api_version.rpartition("/")[0]
        for place in (namespace, ""):
            if found := self._created.get((group, kind, place, name)):
                return found.obj
        return self._present.find(api_version, kind, namespace, name)

    # -- the plan ------------------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return the plan: replaced objects are deleted, then objects are created and updated in the order of their
        kinds, owners before what they own, and at last objects are deleted in reverse order."""
        for _ in self.planning():
            pass
        return self.result

    def planning(self) -> Iterator[None]:
        """Make the plan, which is then `result`, in short steps."""
        plan = self.result
        # Found first, removed then: the owner of an object may be left to a controller, too.
        left = {}
        for key, past in self._created.items():
            left[key] = self._left_to(past.ref, past.obj)
            yield
        for key, reason in left.items():
            if reason:
                self.note(self._created.pop(key).ref.shown, reason)
        plan.steps += sorted(self._replaced, key=lambda each: _rank(each.ref), reverse=True)
        writes: list[_Past | Step] = sorted([*self._created.values(), *self._updated], key=lambda each: _rank(each.ref))
        indexes: dict[str, int] = {}
        """The step that creates an object, by the uid that it had."""
        for each in self._owners_first(writes):
            yield
            if isinstance(each, Step):
                plan.steps.append(each)
                continue
            step = self._creation(each, indexes)
            indexes[_uid(each.obj)] = len(plan.steps)
            plan.steps.append(step)
            if each.ref.plural == _CLAIMS and (volume := claim_of_volume(each.obj, self._present)) is not None:
                plan.steps.append(_rebound(volume, len(plan.steps) - 1))
        gone = {each.ref.name for each in self._deleted if each.ref.plural == "namespaces"}
        plan.steps += sorted(
            (each for each in self._deleted if each.ref.namespace not in gone),
            key=lambda each: _rank(each.ref),
            reverse=True,
        )

    def _owners_first(self, writes: Iterable[_Past | Step]) -> Iterator[_Past | Step]:
        by_uid = {_uid(each.obj): each for each in self._created.values()}
        begun: set[ObjectRef] = set()
        done: set[ObjectRef] = set()
        for each in writes:
            if isinstance(each, Step):
                yield each
                continue
            # An explicit stack, because chains of owners may be long, and circular in bad data.
            stack = [each]
            while stack:
                past = stack[-1]
                begun.add(past.ref)
                owners = (by_uid.get(owner.get("uid", "")) for owner in _owners(past.obj))
                if missing := [owner for owner in owners if owner is not None and owner.ref not in begun]:
                    stack.append(missing[0])
                    continue
                stack.pop()
                if past.ref not in done:
                    done.add(past.ref)
                    yield past

    def _creation(self, past: _Past, indexes: Mapping[str, int]) -> Step:
        ref, obj = past.ref, past.obj
        anew = made_anew(ref.group, ref.plural, obj, self._present, self._is_created)
        for text in anew.warnings:
            self.warn(f"{ref.shown}: {text}")
        body: Obj = {"apiVersion": ref.api_version, "kind": ref.kind, **anew.body}
        step = Step("create", ref, "POST", ref.collection, body)
        if anew.may_exist:
            step.action, step.method, step.path, step.content_type = "apply", "PATCH", ref.path, APPLY_PATCH
        references: list[Obj] = []
        for owner in _owners(obj):
            kept = dict(owner)
            if (index := indexes.get(owner.get("uid", ""))) is not None:
                step.links.append((["metadata", "ownerReferences", len(references), "uid"], index))
            else:
                known = self._present.find(owner["apiVersion"], owner["kind"], ref.namespace, owner["name"])
                if known is None:
                    self.warn(f"{ref.shown}: its owner {owner['kind'].lower()}/{owner['name']} does not exist any more")
                    continue
                kept["uid"] = _uid(known)
            references.append(kept)
        if references:
            body["metadata"]["ownerReferences"] = references
        if past.after_deletion:
            step.awaits = "AlreadyExists"
        elif self._is_new_kind(ref) or (ref.namespace and self._is_created("", "Namespace", "", ref.namespace)):
            step.awaits = "NotFound"
        step.text = "replaced: created anew, with a new uid" if past.after_deletion else "created anew, with a new uid"
        return step

    def _is_created(self, group: str, kind: str, namespace: str, name: str) -> bool:
        return (group, kind, namespace, name) in self._created

    def _is_new_kind(self, ref: ObjectRef) -> bool:
        definition = f"{ref.plural}.{ref.group}"
        return self._is_created("apiextensions.k8s.io", "CustomResourceDefinition", "", definition)


_CLAIMS = "persistentvolumeclaims"


def _key(ref: ObjectRef) -> tuple[str, str, str, str]:
    return ref.group, ref.kind, ref.namespace, ref.name


def _rank(ref: ObjectRef) -> tuple[int, str, str, str, str]:
    return _RANKS.get(ref.plural, 50), ref.group, ref.plural, ref.namespace, ref.name


def _uid(obj: ObjView) -> str:
    found: str = (obj.get("metadata") or {}).get("uid") or ""
    return found


def _system_fields(ref: ObjectRef, before: ObjView, now: ObjView) -> Sequence[Path]:
    """Return the fields that components write, not people. An address of a Service is one unless it has none by
    choice."""
    if ref.plural == "services" and not ref.group:
        addresses = [(each.get("spec") or {}).get("clusterIP") for each in (before, now)]
        return _ADDRESSES if "None" not in addresses else ()
    return _SYSTEM_FIELDS.get((ref.group, ref.plural), ())


def _owners(obj: ObjView) -> Sequence[Mapping[str, Any]]:
    return (obj.get("metadata") or {}).get("ownerReferences") or ()


def _rebound(volume: ObjView, claim_step: int) -> Step:
    """Return the step that gives a kept volume to the claim that a step has created."""
    name = volume["metadata"]["name"]
    reference = volume["spec"]["claimRef"]
    patch: list[dict[str, Any]] = [
        {"op": "test", "path": "/spec/claimRef/uid", "value": reference["uid"]},
        {"op": "replace", "path": "/spec/claimRef/uid", "value": ""},
    ]
    if "resourceVersion" in reference:
        patch.append({"op": "remove", "path": "/spec/claimRef/resourceVersion"})
    ref = ObjectRef("", "v1", "persistentvolumes", "PersistentVolume", "", name)
    text = f"bound to {reference['namespace']}/{reference['name']} again"
    return Step("update", ref, "PATCH", ref.path, patch, text, JSON_PATCH, [([1, "value"], claim_step)])


def value_texts(ref: ObjectRef, path: tuple[str, ...], old: Any, current: Any) -> str:
    """Return what a field is now, and what it would be set back to; not the values of a Secret."""
    if ref.is_secret and path[0] in SECRET_PARTS:
        return "was changed since"
    now = "is absent" if current is ABSENT else f"is {short_value(current)}"
    then = "to be removed" if old is ABSENT else f"to be set back to {short_value(old)}"
    return f"{now} by now, {then}"
