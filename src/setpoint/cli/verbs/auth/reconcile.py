"""`auth reconcile`: reconcile roles and bindings with files; permissions are removed only on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, Target, choose
from setpoint.cli.writing import DRY_RUN, OUTPUT, DryRun, Results, dry_run
from setpoint.client.resources import builtin
from setpoint.meta.errors import AlreadyExists, Conflict, NotFound
from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj

_GROUP = "rbac.authorization.k8s.io"
_KINDS = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
_OPTED_OUT = "rbac.authorization.kubernetes.io/autoupdate"
_TRIES = 3


class Outcome(NamedTuple):
    obj: Obj
    operation: str = ""
    """The operation; empty if nothing changed."""
    missing: tuple[Obj, ...] = ()
    extra: tuple[Obj, ...] = ()


async def run(invocation: Invocation) -> None:
    if not (invocation.flags.filename or invocation.flags.kustomize):
        raise Failed("must specify one of -f and -k")
    if invocation.args:
        raise Failed("no arguments are allowed")
    dry = dry_run(invocation)
    if dry is DryRun.SERVER:
        raise Failed("--dry-run=server for command reconcile is not supported yet")
    results = Results(invocation, dry)
    errors: list[Exception] = []
    for target in (await choose(invocation)).targets:
        if target.resource.group != _GROUP or target.resource.kind not in _KINDS:
            continue
        try:
            outcome, protected = await _reconcile(invocation, target, dry is DryRun.CLIENT)
        except EXPECTED as error:
            errors.append(error)
            continue
        results.add(outcome.obj, "reconciled", typed=True)
        _report(invocation, target, outcome, protected)
    raise_all(errors)


async def _reconcile(invocation: Invocation, target: Target, dry: bool) -> tuple[Outcome, bool]:
    expected = target.obj or {}
    for attempt in range(_TRIES):
        try:
            existing = await invocation.client.get(target.resource, target.name, target.namespace)
        except NotFound:
            existing = None
        outcome = _computed(invocation, target, existing, expected)
        opted = ((existing or {}).get("metadata") or {}).get("annotations") or {}
        protected = opted.get(_OPTED_OUT) == "false"
        if dry or protected or not outcome.operation:
            return outcome, protected
        try:
            return outcome._replace(obj=await _written(invocation, target, outcome)), protected
        except (Conflict, AlreadyExists):
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _written(invocation: Invocation, target: Target, outcome: Outcome) -> Obj:
    if outcome.operation == "update":
        return await invocation.client.update(outcome.obj, resource=target.resource)
    if outcome.operation == "recreate":
        await invocation.client.delete(target.resource, target.name, target.namespace)
    elif target.namespace:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target.namespace}}
        try:
            await invocation.client.get(builtin("namespaces"), target.namespace)
        except NotFound:
            await invocation.client.create(namespace)
    return await invocation.client.create(outcome.obj, resource=target.resource)


def _computed(invocation: Invocation, target: Target, existing: Obj | None, expected: Obj) -> Outcome:
    binding = target.resource.kind.endswith("Binding")
    if existing is None:
        return Outcome(expected, "create", tuple(expected.get("subjects" if binding else "rules") or ()))
    if binding and existing.get("roleRef") != expected.get("roleRef"):
        return Outcome(expected, "recreate", tuple(expected.get("subjects") or ()))
    meta = existing["metadata"]
    wanted = expected.get("metadata") or {}
    merged = {
        key: {**(wanted.get(key) or {}), **(meta.get(key) or {})}
        for key in ("annotations", "labels")
        if wanted.get(key) or meta.get(key)
    }
    new = {**existing, "metadata": {**meta, **merged}}
    if binding:
        return _with_subjects(invocation, existing, expected, new)
    return _with_rules(invocation, existing, expected, new)


def _with_subjects(invocation: Invocation, existing: Obj, expected: Obj, new: Obj) -> Outcome:
    there, wanted = existing.get("subjects") or [], expected.get("subjects") or []
    missing = [one for one in wanted if one not in there]
    extra = [one for one in there if one not in wanted]
    if invocation.flags.remove_extra_subjects and (missing or extra):
        new = {**new, "subjects": wanted}
    elif missing:
        new = {**new, "subjects": [*there, *missing]}
    return Outcome(new, "update" if new != existing else "", tuple(missing), tuple(extra))


def _with_rules(invocation: Invocation, existing: Obj, expected: Obj, new: Obj) -> Outcome:
    there, wanted = existing.get("rules") or [], expected.get("rules") or []
    missing: list[Obj] = []
    extra: list[Obj] = []
    if not expected.get("aggregationRule"):
        missing, extra = uncovered(there, wanted), uncovered(wanted, there)
        if invocation.flags.remove_extra_permissions and (missing or extra):
            new = {**new, "rules": wanted}
        elif missing:
            new = {**new, "rules": [*there, *missing]}
    elif expected["aggregationRule"] != existing.get("aggregationRule"):
        selectors = (existing.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
        more = [one for one in expected["aggregationRule"].get("clusterRoleSelectors") or () if one not in selectors]
        keep = [] if invocation.flags.remove_extra_permissions else selectors
        if invocation.flags.remove_extra_permissions or more:
            chosen = expected["aggregationRule"] if not keep else {"clusterRoleSelectors": [*selectors, *more]}
            new = {**new, "aggregationRule": chosen}
    return Outcome(new, "update" if new != existing else "", tuple(missing), tuple(extra))


def uncovered(having: list[Obj], wanted: list[Obj]) -> list[Obj]:
    """Return the rules, split into single permissions, that the existing rules do not cover."""
    return [one for rule in wanted for one in _singles(rule) if not any(_covers(owner, one) for owner in having)]


def _singles(rule: Obj) -> Iterator[Obj]:
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule.get("verbs") or ():
                single = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                for name in rule.get("resourceNames") or (None,):
                    yield single if name is None else {**single, "resourceNames": [name]}
    for url in rule.get("nonResourceURLs") or ():
        for verb in rule.get("verbs") or ():
            yield {"verbs": [verb], "nonResourceURLs": [url]}


def _covers(owner: Obj, single: Obj) -> bool:
    def has(key: str) -> bool:
        there, wanted = owner.get(key) or (), single.get(key) or ()
        return "*" in there or set(wanted) <= set(there)

    if not has("verbs"):
        return False
    if "nonResourceURLs" in single:
        url = single["nonResourceURLs"][0]
        return any(
            one in ("*", url) or (one.endswith("*") and url.startswith(one[:-1]))
            for one in owner.get("nonResourceURLs") or ()
        )
    resource = single["resources"][0]
    resources = owner.get("resources") or ()
    _, slash, part = resource.partition("/")
    if not (has("resources") or (slash and f"*/{part}" in resources)):
        return False
    names, wanted = owner.get("resourceNames") or (), single.get("resourceNames") or ()
    return has("apiGroups") and (not names or (bool(wanted) and set(wanted) <= set(names)))


def _report(invocation: Invocation, target: Target, outcome: Outcome, protected: bool) -> None:
    if not outcome.operation:
        return
    caveat = f", but object opted out ({_OPTED_OUT}: false)" if protected else ""
    invocation.print_err(f"\treconciliation required {outcome.operation}{caveat}")
    binding = target.resource.kind.endswith("Binding")
    what = "subjects" if binding else "rules"
    removing = invocation.flags.remove_extra_subjects if binding else invocation.flags.remove_extra_permissions
    for title, found in (
        (f"missing {what} added", outcome.missing),
        (f"extra {what} removed", outcome.extra if removing else ()),
    ):
        if found:
            invocation.print_err(f"\t{title}:")
            for one in found:
                invocation.print_err(f"\t\t{_subject(one) if binding else _rule(one)}")


def _subject(subject: Obj) -> str:
    shown = (("Kind", "kind"), ("APIGroup", "apiGroup"), ("Name", "name"), ("Namespace", "namespace"))
    return "{" + " ".join(f"{name}:{subject.get(key, '')}" for name, key in shown) + "}"


def _rule(rule: Obj) -> str:
    names = ("Verbs", "APIGroups", "Resources", "ResourceNames", "NonResourceURLs")
    keys = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
    return "{" + " ".join(f"{n}:{plain(rule.get(key) or [])}" for n, key in zip(names, keys, strict=True)) + "}"


COMMAND = Command(
    "Reconciles rules for RBAC role, role binding, cluster role, and cluster role binding objects",
    run,
    (
        *OUTPUT,
        *FILES,
        *DRY_RUN,
        switch("remove-extra-permissions", help="Remove what roles allow beyond the files."),
        switch("remove-extra-subjects", help="Remove those to whom roles are bound beyond the files."),
    ),
    usage="-f FILENAME",
    about="What is missing is created, and namespaces as well. A binding to another role is made anew.",
    examples="""
    setpoint auth reconcile -f access.yaml
    """,
)
