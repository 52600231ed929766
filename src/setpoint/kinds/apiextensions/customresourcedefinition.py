"""CustomResourceDefinition: a kind that a user adds. Conditions and accepted names are set by controllers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from setpoint.kinds.apiextensions.definition_conditions import (
    APPROVED,
    CLEANUP,
    SEE,
    approval,
    is_protected,
    pending_deletion,
    put,
)
from setpoint.kinds.apiextensions.definition_rules import (
    Ratcheting,
    is_ca_bundle,
    validate_definition,
    validate_names,
)
from setpoint.kinds.apiextensions.schema_scalars import is_recognized
from setpoint.kinds.apiextensions.structural import parts
from setpoint.kinds.columns import NAME
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.meta.field import Errors, FieldError, invalid, required
from setpoint.meta.objectmeta import IMMUTABLE
from setpoint.meta.objects import Obj

_SHARED = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}


def hoisted(spec: Obj) -> Obj:
    """Return a copy of the spec with the settings that all versions share at the top level, as upstream has them."""
    versions = [dict(version) for version in spec.get("versions") or ()]
    result = {**spec, "versions": versions}
    if not versions:
        return result
    result["version"] = versions[0].get("name", "")
    for name, top_name in _SHARED.items():
        first = versions[0].get(name)
        if all(version.get(name) == first for version in versions):
            if first is not None:
                result[top_name] = first
            for version in versions:
                version.pop(name, None)
    return result


_REVIEW_VERSIONS = frozenset({"v1", "v1beta1"})


def _created(obj: Obj, now: datetime) -> Any:
    return obj["metadata"].get("creationTimestamp")


def _served(obj: Obj, now: datetime) -> str:
    names = (
        version.get("name", "") + ("(storage)" if version.get("storage") else "")
        for version in obj["spec"].get("versions") or ()
        if version.get("served")
    )
    return ",".join(sorted(names))


def _scope(obj: Obj, now: datetime) -> str:
    return str(obj["spec"].get("scope", ""))


def _group(obj: Obj, now: datetime) -> str:
    return str(obj["spec"].get("group", ""))


def _kind(obj: Obj, now: datetime) -> str:
    return str((obj["spec"].get("names") or {}).get("kind", ""))


def _short_names(obj: Obj, now: datetime) -> str:
    return ",".join((obj["spec"].get("names") or {}).get("shortNames") or ())


def _established(obj: Obj, now: datetime) -> bool:
    return _is_established(obj)


def _storage_version(spec: Obj) -> str | None:
    for version in spec.get("versions") or ():
        if version.get("storage"):
            return str(version.get("name", ""))
    return None


def _is_established(obj: Obj) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)


def _schemas(spec: Obj) -> Iterable[Obj]:
    """Yield every schema at every depth, those that versions share only once."""
    shared = hoisted(spec)
    holders = [shared.get("validation"), *(version.get("schema") for version in shared["versions"])]
    pending = [holder["openAPIV3Schema"] for holder in holders if holder and holder.get("openAPIV3Schema")]
    while pending:
        schema = pending.pop()
        yield schema
        pending += reversed(parts(schema))


def _warnings(spec: Obj) -> list[str]:
    formats, sets = [], set()
    for schema in _schemas(spec):
        name, items = schema.get("format", ""), schema.get("items")
        if name and not is_recognized(name, schema.get("type", "")):
            formats.append(f'unrecognized format "{name}"')
        if schema.get("x-kubernetes-list-type") == "set" and isinstance(items, dict):
            if items.get("type") in ("object", "array"):
                sets.add(
                    f'x-kubernetes-list-type: set for items of type "{items["type"]}" is not supported by '
                    "server-side apply or CEL validation rules"
                )
    return formats + sorted(sets)


class CustomResourceDefinitionStrategy(Strategy):
    qualified_finalizers = False
    allow_unconditional_update = False
    has_status = True
    has_generation = True
    columns = (
        NAME,
        Column("Scope", _scope, description="Whether objects live in namespaces."),
        Column("Versions", _served, description="Versions that are served."),
        Column("Created At", _created, type="date", description="When the object was created."),
        Column("Group", _group, priority=1, description="The group that the kind belongs to."),
        Column("Kind", _kind, priority=1, description="The kind that is defined."),
        Column("ShortNames", _short_names, priority=1, description="What people type."),
        Column("Established", _established, type="boolean", priority=1, description="Whether it is served already."),
    )

    def __init__(self) -> None:
        self.subresources = {"status": CustomResourceDefinitionStatusStrategy(self)}

    def default(self, obj: Obj) -> None:
        spec = obj["spec"]
        names = spec.setdefault("names", {})
        kind = names.get("kind", "")
        if not names.get("singular") and kind:
            names["singular"] = kind.lower()
        if not names.get("listKind") and kind:
            names["listKind"] = kind + "List"
        conversion = spec.get("conversion")
        if conversion is None:
            spec["conversion"] = {"strategy": "None"}
        else:
            service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
            if service is not None and service.get("port") is None:
                service["port"] = 443
        status = obj.get("status")
        if status is not None and not status.get("storedVersions"):
            if (stored := _storage_version(spec)) is not None:
                status["storedVersions"] = [stored]

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        if (stored := _storage_version(obj["spec"])) is not None:
            obj["status"]["storedVersions"] = [stored]

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        stored, status = _storage_version(obj["spec"]), obj.get("status") or {}
        if stored is not None and stored not in (status.get("storedVersions") or ()):
            obj["status"] = {**status, "storedVersions": [*(status.get("storedVersions") or ()), stored]}

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        name, spec = obj["metadata"].get("name", ""), obj["spec"]
        if name and name != f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}":
            errs.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
        validate_definition(hoisted(spec), Ratcheting(), errs, _no_versions(spec, ctx))
        _validate_status_and_approval(obj, None, errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        spec, before = obj["spec"], old["spec"]
        shared = hoisted(spec)
        validate_definition(shared, _ratcheting(obj, shared, old), errs, _no_versions(spec, ctx))
        names, old_names = spec.get("names") or {}, before.get("names") or {}
        fixed = [("group", spec, before), ("names.plural", names, old_names)]
        if _is_established(old):
            fixed = [("scope", spec, before), ("names.kind", names, old_names), *fixed]
        for path, new, stored in fixed:
            key = path.rpartition(".")[2]
            if new.get(key, "") != stored.get(key, ""):
                errs.append(invalid(f"spec.{path}", new.get(key, ""), IMMUTABLE))
        _validate_status_and_approval(obj, old, errs)

    def begin_deletion(self, obj: Obj, now: str) -> bool:
        meta = obj["metadata"]
        if meta.get("deletionTimestamp"):
            return False
        meta["deletionTimestamp"] = now
        if CLEANUP not in (meta.get("finalizers") or ()):
            meta["finalizers"] = [*(meta.get("finalizers") or ()), CLEANUP]
        put(obj, pending_deletion(), now)
        return True

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return _warnings(obj["spec"])

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        known = set(_warnings(old["spec"]))
        return [text for text in _warnings(obj["spec"]) if text not in known]


def _no_versions(spec: Obj, ctx: Context) -> list[Any] | None:
    """Return how a message shows a missing list of versions: null, or an empty list if that was sent."""
    return [] if ctx.was_empty(spec, "versions") else None


def _ratcheting(obj: Obj, spec: Obj, old: Obj) -> Ratcheting:
    before = hoisted(old["spec"])
    rules = [rule for schema in _schemas(old["spec"]) for rule in schema.get("x-kubernetes-validations") or ()]
    schemas = {version.get("name", ""): version.get("schema") for version in old["spec"].get("versions") or ()}
    same = [
        version.get("name", "")
        for version in obj["spec"].get("versions") or ()
        if version.get("name", "") in schemas and schemas[version.get("name", "")] == version.get("schema")
    ]
    webhook = (before.get("conversion") or {}).get("webhook") or {}
    versions = webhook.get("conversionReviewVersions") or ()
    bundle = (webhook.get("clientConfig") or {}).get("caBundle") or ""
    old_versions = {version.get("name", ""): version for version in before["versions"]}
    pairs = [("", spec, before)]
    pairs += [(v.get("name", ""), v, old_versions.get(v.get("name", ""), {})) for v in spec["versions"]]
    return Ratcheting(
        review_versions=bool(versions) and not _REVIEW_VERSIONS & set(versions),
        ca_bundle=not _is_established(old) or (bool(bundle) and not is_ca_bundle(bundle)),
        selectable=frozenset(
            name
            for name, new, stored in pairs
            if len(stored.get("selectableFields") or ()) > 8
            and new.get("selectableFields") == stored["selectableFields"]
        ),
        rules=frozenset(rule.get("rule", "") for rule in rules),
        messages=frozenset(rule.get("messageExpression", "") for rule in rules),
        unchanged=frozenset(same),
    )


def _validate_status_and_approval(obj: Obj, old: Obj | None, errs: Errors) -> None:
    spec, status = obj["spec"], obj.get("status") or {}
    validate_names(status.get("acceptedNames") or {}, "status.acceptedNames", errs)
    _validate_stored(status.get("storedVersions"), spec, "status.storedVersions", errs)
    if error := _approval_error(obj, old):
        errs.append(error)
    if spec.get("preserveUnknownFields") and not (old is not None and old["spec"].get("preserveUnknownFields")):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        errs.append(invalid("spec.preserveUnknownFields", True, text))


def _validate_stored(stored: list[str] | None, spec: Obj, path: str, errs: Errors) -> None:
    if not stored:
        errs.append(invalid(path, None, "must have at least one stored version"))
        return
    known = set()
    for version in spec.get("versions") or ():
        name = version.get("name", "")
        known.add(name)
        if version.get("storage") and name not in stored:
            errs.append(invalid(path, stored, f"must have the storage version {name}"))
    for i, name in enumerate(stored):
        if name not in known:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and "
                f"removes {name} from status.storedVersions"
            )
            errs.append(invalid(f"{path}[{i}]", name, text))


def _approval_error(obj: Obj, old: Obj | None) -> FieldError | None:
    """Return the error for a protected community domain that is used without approval."""
    if not is_protected(obj["spec"].get("group", "")):
        return None
    state, text = approval(obj)
    if state in ("approved", "bypassed") or (old is not None and approval(old)[0] == state):
        return None
    path = f"metadata.annotations[{APPROVED}]"
    if state == "missing":
        return required(path, f'protected groups must have approval annotation "{APPROVED}", {SEE}')
    why = f'protected groups must have approval annotation "{APPROVED}" with either a URL or a reason starting with '
    return invalid(path, text, f'{why}"unapproved", {SEE}')


class CustomResourceDefinitionStatusStrategy(StatusStrategy):
    qualified_finalizers = False
    allow_unconditional_update = False

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        validate_names((obj.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames", errs)


STRATEGY = CustomResourceDefinitionStrategy()
