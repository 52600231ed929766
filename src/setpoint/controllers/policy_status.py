"""The status of ValidatingAdmissionPolicies: type-checks their expressions against the matched kinds.

Findings are warnings and never change what a policy does. Kinds that are not served or only matched by wildcards are
not checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from setpoint.client.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.catalog import Resource
from setpoint.kinds.expression_checks import TypedKind, TypedPolicy
from setpoint.meta.cel import SchemaType, schema_type
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller, Manager

_MAX_KINDS: Final = 10
"""The maximum number of kinds of one rule; the rules after it are skipped."""
Served = Callable[[bool], Awaitable[Sequence[Resource]]]
"""Returns the served resources; a true argument bypasses the cache."""
_PREFIX: Final = "#/components/schemas/"
_KINDS: Final = "x-kubernetes-group-version-kind"
_CIRCULAR: Final = {"type": "object"}
Schemas = Mapping[str, Mapping[str, Any]]
_POLICIES = builtin("validatingadmissionpolicies", "admissionregistration.k8s.io")
_NAME = "validatingadmissionpolicy-status-controller"
_MANAGER = "validatingadmissionpolicy-status"
_WORKERS = 5


class GroupVersionKind(NamedTuple):
    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


def _kind_of(api_version: str, kind: str) -> GroupVersionKind:
    group, _, version = api_version.rpartition("/")
    return GroupVersionKind(group, version, kind)


async def matched_kinds(policy: dict[str, Any], served: Served) -> list[GroupVersionKind]:
    """Return the matched kinds sorted by group, version and kind. Unknown resources trigger one new discovery per
    policy."""
    found: set[GroupVersionKind] = set()
    known = await served(False)
    rediscovered = False
    for rule in (policy["spec"].get("matchConstraints") or {}).get("resourceRules") or ():
        count = 0
        for group, version, name in _named(rule):
            kinds = list(_kinds(known, group, version, name))
            if not kinds and not rediscovered:
                rediscovered = True
                known = await served(True)
                kinds = list(_kinds(known, group, version, name))
            for kind in kinds:
                found.add(kind)
                count += 1
                if count == _MAX_KINDS:
                    return sorted(found)
    return sorted(found)


def _named(rule: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the (group, version, resource) of a rule; none if a group or version is a wildcard."""
    groups, versions = sorted(rule.get("apiGroups") or ()), sorted(rule.get("apiVersions") or ())
    if any("*" in name for name in (*groups, *versions)):
        return
    resources = sorted(name for name in rule.get("resources") or () if "*" not in name and "/" not in name)
    for group in groups:
        for version in versions:
            for resource in resources:
                yield group, version, resource


def _kinds(served: Iterable[Resource], group: str, version: str, name: str) -> Iterator[GroupVersionKind]:
    """Yield the matching kinds. An empty group matches any group, as in upstream's mapper."""
    for resource in served:
        if (not group or resource.group == group) and resource.version == version:
            if name.lower() in (resource.plural, resource.singular_name or resource.kind.lower()):
                yield GroupVersionKind(resource.group, resource.version, resource.kind)


# -- schemas ----------------------------------------------------------------------------------------------------------


class SchemaSource:
    """A schema source for one check of one policy. Documents are large and not retained longer than that."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._documents: dict[str, Schemas] = {}

    async def type_of(self, kind: GroupVersionKind, name: str) -> tuple[bool, SchemaType | None]:
        """Return whether the schema is known, and its CEL type with this name."""
        schemas = await self._schemas(kind)
        for reference, schema in schemas.items():
            if any(_is(each, kind) for each in schema.get(_KINDS) or ()):
                return True, schema_type(resolved(schemas, schema, (reference,)), name=name, root=True)
        return False, None

    async def _schemas(self, kind: GroupVersionKind) -> Schemas:
        place = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
        if place not in self._documents:
            try:
                document = await self._client.sender.json("GET", f"/openapi/v3/{place}")
            except NotFound:
                document = {}
            self._documents[place] = (document.get("components") or {}).get("schemas") or {}
        return self._documents[place]


def _is(named: Mapping[str, Any], kind: GroupVersionKind) -> bool:
    return (named.get("group") or "", named.get("version"), named.get("kind")) == kind


def resolved(schemas: Schemas, schema: Mapping[str, Any], seen: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the schema with references resolved. A recursive reference becomes an object of unknown type. `seen` are
    the references that led here."""
    reference = _reference(schema)
    if reference is not None:
        if reference in seen:
            return _CIRCULAR
        schema, seen = schemas.get(reference) or {}, (*seen, reference)
    whole = dict(schema)
    if whole.get("format") == "int-or-string":
        whole["x-kubernetes-int-or-string"] = True
    if isinstance(properties := whole.get("properties"), Mapping):
        whole["properties"] = {name: resolved(schemas, each, seen) for name, each in properties.items()}
    for part in ("additionalProperties", "items"):
        if isinstance(whole.get(part), Mapping):
            whole[part] = resolved(schemas, whole[part], seen)
    return whole


def _reference(schema: Mapping[str, Any]) -> str | None:
    """Return the reference of a schema, also one wrapped to carry a description or default."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_PREFIX)
    for part in schema.get("allOf") or ():
        found = _reference(part)
        if found is not None:
            return found
    return None


# -- controller -------------------------------------------------------------------------------------------------------


def policy_status_controller(manager: Manager, _: ControllerOptions) -> Controller:
    client, policies = manager.client_for(_NAME), manager.informer(_POLICIES)

    async def reconcile(key: str) -> None:
        policy = policies.get(key)
        if policy is None:
            return
        generation = policy["metadata"]["generation"]
        if generation <= ((policy.get("status") or {}).get("observedGeneration") or 0):
            return
        found = await _warnings(policy, client)
        status = {
            "observedGeneration": generation,
            "typeChecking": {"expressionWarnings": found} if found else {},
        }
        wanted = {"apiVersion": _POLICIES.api_version, "kind": _POLICIES.kind, "metadata": {"name": key}}
        await client.apply(wanted | {"status": status}, field_manager=_MANAGER, force=True, subresource="status")

    controller = Controller(_NAME, reconcile, manager.clock, workers=_WORKERS)
    policies.add_handler(lambda _, new: None if new is None else controller.enqueue(str(new["metadata"]["name"])))
    return controller


async def _warnings(policy: Obj, client: Client) -> list[Obj]:
    """Return the warnings about validations and message expressions, by kind."""
    spec, schemas = policy["spec"], SchemaSource(client)
    kinds: list[TypedKind] = []
    for each in await matched_kinds(policy, lambda fresh: client.discovery.resources(fresh=fresh)):
        known, found = await schemas.type_of(each, each.kind)
        if known:
            kinds.append(TypedKind(str(each), found))
    params = None
    if param_kind := spec.get("paramKind"):
        # Type names must differ, and an object and its parameters can be of the same kind.
        _, params = await schemas.type_of(
            _kind_of(param_kind["apiVersion"], param_kind["kind"]), f"{param_kind['kind']}Params"
        )
    variables = tuple((each["name"], each["expression"]) for each in spec.get("variables") or ())
    checked = TypedPolicy(kinds, bool(param_kind), params, variables)
    found_warnings: list[Obj] = []
    for at, validation in enumerate(spec.get("validations") or ()):
        for name in ("expression", "messageExpression"):
            text = validation.get(name)
            warning = checked.problems(text) if text else ""
            if warning:
                found_warnings.append({"fieldRef": f"spec.validations[{at}].{name}", "warning": warning})
    return found_warnings
