"""The conditions of a CustomResourceDefinition: its progress to being served, or to being removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from setpoint.kinds.apiextensions.approval import APPROVED, SEE, approval, is_protected
from setpoint.meta.field import Errors, aggregate_message, invalid
from setpoint.meta.goformat import quote

Obj = dict[str, Any]
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
NAMES_ACCEPTED, ESTABLISHED, TERMINATING = "NamesAccepted", "Established", "Terminating"
NON_STRUCTURAL, APPROVAL = "NonStructuralSchema", "KubernetesAPIApprovalPolicyConformant"


def condition(kind: str, status: str, reason: str, message: str) -> Obj:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def find(obj: Obj, kind: str) -> Obj | None:
    for one in (obj.get("status") or {}).get("conditions") or ():
        if one.get("type") == kind:
            found: Obj = one
            return found
    return None


def is_true(obj: Obj, kind: str) -> bool:
    found = find(obj, kind)
    return found is not None and found.get("status") == "True"


def equivalent(one: Obj | None, other: Obj | None) -> bool:
    """Return whether two conditions are equal except for their transition time."""
    if one is None or other is None:
        return one is other
    return all(one.get(name, "") == other.get(name, "") for name in ("type", "status", "reason", "message"))


def put(obj: Obj, new: Obj, now: str) -> None:
    """Set the condition in `obj`, which gets a status of its own; the time changes only with the condition's status."""
    status = obj.get("status") or {}
    conditions: list[Obj] = list(status.get("conditions") or ())
    new = {"type": new["type"], "status": new["status"], "lastTransitionTime": now, **new}
    for at, old in enumerate(conditions):
        if old.get("type") == new["type"]:
            if old.get("status") == new["status"] and old.get("lastTransitionTime"):
                new["lastTransitionTime"] = old["lastTransitionTime"]
            conditions[at] = new
            break
    else:
        conditions.append(new)
    obj["status"] = {**status, "conditions": conditions}


def remove(obj: Obj, kind: str) -> None:
    status = obj.get("status") or {}
    obj["status"] = {**status, "conditions": [one for one in status.get("conditions") or () if one.get("type") != kind]}


# -- names ------------------------------------------------------------------------------------------------------------


def accept_names(obj: Obj, others: Iterable[Obj]) -> tuple[Obj, Obj, Obj]:
    """Return the names that the definition may have beside the `others` of its group; whether it has all it asks for;
    and whether it is established."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in [*others, obj]:
        taken = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {taken.get("plural", ""), taken.get("singular", ""), *(taken.get("shortNames") or ())}
        kinds |= {taken.get("kind", ""), taken.get("listKind", "")}
    wanted, had = obj["spec"].get("names") or {}, (obj.get("status") or {}).get("acceptedNames") or {}
    names, problem = dict(had), None
    for name, used, reason in (
        ("plural", resources, "PluralConflict"),
        ("singular", resources, "SingularConflict"),
        ("shortNames", resources, "ShortNamesConflict"),
        ("kind", kinds, "KindConflict"),
        ("listKind", kinds, "ListKindConflict"),
    ):
        if name == "shortNames":
            text = _short_name_problem(wanted.get(name) or [], had.get(name) or [], used)
        else:
            text = _problem(wanted.get(name, ""), had.get(name, ""), used)
        if text:
            problem = condition(NAMES_ACCEPTED, "False", reason, text)
        else:
            _copy_field(names, wanted, name)
    _copy_field(names, wanted, "categories")
    accepted = problem or condition(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found")
    established = find(obj, ESTABLISHED) or condition(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
    if established.get("status") != "True" and accepted["status"] == "True":
        established = condition(ESTABLISHED, "False", "Installing", "the initial names have been accepted")
    return names, accepted, established


def _copy_field(names: Obj, wanted: Obj, name: str) -> None:
    if wanted.get(name):
        names[name] = wanted[name]
    else:
        names.pop(name, None)


def _problem(wanted: str, had: str, used: set[str]) -> str:
    return "" if wanted == had or wanted not in used else f"{quote(wanted)} is already in use"


def _short_name_problem(wanted: list[str], had: list[str], used: set[str]) -> str:
    if wanted == had:
        return ""
    texts = [text for name in wanted if name not in had and (text := _problem(name, "", used))]
    texts = list(dict.fromkeys(texts))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


# -- the rest ---------------------------------------------------------------------------------------------------------


def establish(obj: Obj) -> Obj:
    """Return the Established condition of a definition whose names are accepted."""
    client = ((obj["spec"].get("conversion") or {}).get("webhook") or {}).get("clientConfig") or {}
    bundle = client.get("caBundle")
    # Rules of definitions are loaded with the first definition.
    from setpoint.kinds.apiextensions.definition_rules import is_ca_bundle

    if bundle and not is_ca_bundle(bundle):
        return condition(ESTABLISHED, "False", "InvalidCABundle", "The conversion webhook CABundle is invalid")
    return condition(ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted")


def approval_condition(obj: Obj) -> Obj | None:
    """Return the approval condition, or None if the group needs no approval."""
    if not is_protected(obj["spec"].get("group", "")):
        return None
    state, text = approval(obj)
    needs = f'protected groups must have approval annotation "{APPROVED}"'
    status, reason, message = {
        "missing": ("False", "MissingAnnotation", f"{needs}, {SEE}"),
        "bypassed": ("False", "UnapprovedAnnotation", f"not approved: {quote(text)}"),
        "approved": ("True", "ApprovedAnnotation", f"approved in {text}"),
        "invalid": (
            "False", "InvalidAnnotation", f'{needs} with either a URL or a reason starting with "unapproved", {SEE}',
        ),
    }[state]  # fmt: skip
    return condition(APPROVAL, status, reason, message)


def structural_condition(obj: Obj) -> Obj | None:
    """Return the NonStructuralSchema condition, or None if all schemas are structural."""
    # Loaded with the first definition.
    from setpoint.kinds.apiextensions.structural import unsupported, validate_structural

    errs: Errors = []
    spec = obj["spec"]
    if spec.get("preserveUnknownFields"):
        errs.append(invalid("spec.preserveUnknownFields", True, "must be false"))
    for i, version in enumerate(spec.get("versions") or ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            continue
        if text := unsupported(schema):
            why = f"failed to check validation schema for version {version.get('name', '')}: {text}"
            return condition(NON_STRUCTURAL, "Unknown", "StructuralError", why)
        validate_structural(schema, f"spec.versions[{i}].schema.openAPIV3Schema", errs)
    return condition(NON_STRUCTURAL, "True", "Violations", aggregate_message(errs)) if errs else None


def pending_deletion() -> Obj:
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    return condition(TERMINATING, "True", "InstanceDeletionPending", text)
