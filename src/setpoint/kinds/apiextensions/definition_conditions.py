"""The conditions of a CustomResourceDefinition: names accepted, established, terminating, structural, approved."""

from __future__ import annotations

import re
from collections.abc import Iterable

from setpoint.meta.conditions import condition_of, conditions_of, with_condition, without_condition
from setpoint.meta.field import Errors, aggregate_message, invalid
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj, ObjView

APPROVED = "api-approved.kubernetes.io"
SEE = "see https://github.com/kubernetes/enhancements/pull/1111"


def is_protected(group: str) -> bool:
    return f".{group}".endswith((".k8s.io", ".kubernetes.io"))


def approval(obj: Obj) -> tuple[str, str]:
    """Return the approval state of a protected group, and the annotation."""
    text = (obj["metadata"].get("annotations") or {}).get(APPROVED, "")
    if not text:
        return "missing", text
    if text.startswith("unapproved"):
        return "bypassed", text
    return "approved" if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+", text) else "invalid", text


CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
NAMES_ACCEPTED, ESTABLISHED, TERMINATING = "NamesAccepted", "Established", "Terminating"
NON_STRUCTURAL, APPROVAL = "NonStructuralSchema", "KubernetesAPIApprovalPolicyConformant"


def condition(kind: str, status: str, reason: str, message: str) -> Obj:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def equivalent(one: ObjView | None, other: ObjView | None) -> bool:
    """Return whether two conditions are equal except for their transition time."""
    if one is None or other is None:
        return one is other
    return all(one.get(name, "") == other.get(name, "") for name in ("type", "status", "reason", "message"))


def put(obj: Obj, new: ObjView, now: str) -> None:
    """Set the condition in `obj`, which gets a status of its own; the time changes only with the condition's status."""
    new = {"type": new["type"], "status": new["status"], "lastTransitionTime": now, **new}
    obj["status"] = {**(obj.get("status") or {}), "conditions": with_condition(conditions_of(obj), new)}


def remove(obj: Obj, kind: str) -> None:
    obj["status"] = {**(obj.get("status") or {}), "conditions": without_condition(conditions_of(obj), kind)}


# -- names ------------------------------------------------------------------------------------------------------------


def accept_names(obj: Obj, others: Iterable[Obj]) -> tuple[Obj, Obj, ObjView]:
    """Return the names that the definition may have beside the `others` of its group; whether it has all it asks for;
    and whether it is established."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in [*others, obj]:
        used_names = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {
            used_names.get("plural", ""),
            used_names.get("singular", ""),
            *(used_names.get("shortNames") or ()),
        }
        kinds |= {used_names.get("kind", ""), used_names.get("listKind", "")}
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
    established = condition_of(obj, ESTABLISHED)
    if established is None:
        established = condition(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
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
    # Imported with the first definition, to start faster.
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
            "False",
            "InvalidAnnotation",
            f'{needs} with either a URL or a reason starting with "unapproved", {SEE}',
        ),
    }[state]
    return condition(APPROVAL, status, reason, message)


def structural_condition(obj: Obj) -> Obj | None:
    """Return the NonStructuralSchema condition, or None if all schemas are structural."""
    # Imported with the first definition, to start faster.
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
