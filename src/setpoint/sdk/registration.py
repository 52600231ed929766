"""The objects that an operator registers with a cluster: definitions of its kinds and webhook configurations."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from setpoint.client import Client
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Forbidden, NotFound
from setpoint.meta.objects import Obj
from setpoint.sdk.kind import Kind
from setpoint.sdk.webhooks import Admission, Convert, Mutate

_READY_WITHIN = 30.0
_POLL_INTERVAL = 0.1
_DEFINITIONS = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_GROUP = "admissionregistration.k8s.io/v1"
_CONFIGURATIONS = {"mutate": "MutatingWebhookConfiguration", "validate": "ValidatingWebhookConfiguration"}
_MANAGED_BY = "app.kubernetes.io/managed-by"


@dataclass(frozen=True)
class ReachedAt:
    """The address at which the API server reaches the operator's webhooks: a URL (`https://host:port`) or a Service."""

    url: str = ""
    namespace: str = ""
    service: str = ""
    port: int = 443
    authority: bytes = b""
    """The CA bundle for the webhooks' certificate, as PEM. Empty means that the API server trusts it already, or that
    another tool injects it."""

    def client_config(self, path: str) -> Obj:
        if self.url:
            found: Obj = {"url": self.url.rstrip("/") + path}
        else:
            service = {"namespace": self.namespace, "name": self.service, "port": self.port, "path": path}
            found = {"service": service}
        return {**found, "caBundle": b64encode(self.authority).decode()} if self.authority else found


def definitions(
    kinds: Iterable[Kind[Any, Any]], conversions: Sequence[Convert], reached: ReachedAt | None
) -> list[Obj]:
    """Return the CustomResourceDefinitions of all kinds that have models, with all their versions.

    Raise ModelProblem for an invalid model, and ValueError for versions of a kind without a conversion.
    """
    found: dict[str, Obj] = {}
    refs: dict[str, set[tuple[str, str]]] = {}
    for conversion in conversions:
        definition = conversion.definition()
        if conversion.others and reached is not None:
            definition["spec"]["conversion"] = {
                "strategy": "Webhook",
                "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": reached.client_config(conversion.path),
                },
            }
        found[conversion.definition_name] = definition
        versions = (conversion.stored, *(other.kind for other in conversion.others))
        refs[conversion.definition_name] = {each.ref for each in versions}
    for kind in kinds:
        if kind.spec is None or not kind.group:
            continue
        name = f"{kind.plural_name}.{kind.group}"
        if name not in found:
            found[name], refs[name] = kind.definition(), {kind.ref}
        elif kind.ref not in refs[name]:
            raise ValueError(f"{name} has several versions: define the conversion between them with Convert")
    return list(found.values())


def configurations(operator: str, admissions: Sequence[Admission[Any, Any]], reached: ReachedAt) -> list[Obj]:
    """Return at most one configuration for mutating and one for validating webhooks."""
    found = []
    for verb, kind in _CONFIGURATIONS.items():
        hooks = [_hook(each, reached) for each in admissions if each.verb == verb]
        if hooks:
            meta = {"name": operator, "labels": {_MANAGED_BY: operator}}
            found.append({"apiVersion": _GROUP, "kind": kind, "metadata": meta, "webhooks": hooks})
    return found


def _hook(admission: Admission[Any, Any], reached: ReachedAt) -> Obj:
    group, _, version = admission.kind.api_version.rpartition("/")
    plural, subresource = admission.kind.plural_name, admission.subresource
    resources = [plural, f"{plural}/*"] if subresource == "*" else [f"{plural}/{subresource}".rstrip("/")]
    rule = {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": resources,
        "operations": list(admission.operations),
        "scope": "*",
    }
    hook: Obj = {
        "name": admission.name,
        "clientConfig": reached.client_config(admission.path),
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail" if admission.required else "Ignore",
        "matchPolicy": "Equivalent",
        "sideEffects": "NoneOnDryRun" if admission.side_effects else "None",
        "timeoutSeconds": admission.timeout,
        "objectSelector": dict(admission.selector or {}),
        "namespaceSelector": dict(admission.namespace_selector or {}),
        "matchConditions": [dict(condition) for condition in admission.conditions],
    }
    if isinstance(admission, Mutate):
        hook["reinvocationPolicy"] = "IfNeeded" if admission.reinvoke else "Never"
    return hook


async def register(
    client: Client, clock: Clock, operator: str, wanted: Sequence[Obj], *, all_known: bool, dry_run: bool
) -> list[str]:
    """Create or update `wanted`, and wait until the definitions in it are served.

    Configurations of webhooks that an earlier version of the operator made and that are no longer wanted are deleted:
    they would block writes without an answer. Unless `all_known`, the address of the webhooks is not known, and
    what is installed about them stays. Returns the names of the definitions that are not installed: with `dry_run`
    those that would be created."""
    missing = []
    for obj in wanted:
        if not all_known:
            obj = await _with_existing_conversion(client, obj)
        applied = await client.apply(obj, field_manager=operator, force=True)
        if obj["kind"] == "CustomResourceDefinition":
            if not dry_run:
                await _wait_until_served(client, clock, obj["metadata"]["name"])
            elif not _is_established(applied):
                missing.append(obj["metadata"]["name"])
    if not all_known:
        return missing
    kinds = {obj["kind"] for obj in wanted}
    for kind in _CONFIGURATIONS.values():
        if kind not in kinds:
            await _delete_obsolete(client, (_GROUP, kind), operator)
    return missing


async def _with_existing_conversion(client: Client, definition: Obj) -> Obj:
    try:
        found = await client.get(_DEFINITIONS, definition["metadata"]["name"])
    except NotFound:
        return definition
    return {**definition, "spec": {"conversion": found["spec"].get("conversion"), **definition["spec"]}}


async def _delete_obsolete(client: Client, ref: tuple[str, str], operator: str) -> None:
    with suppress(NotFound, Forbidden):
        found = await client.get(ref, operator)
        if (found["metadata"].get("labels") or {}).get(_MANAGED_BY) == operator:
            await client.delete(ref, operator, uid=found["metadata"]["uid"])


async def _wait_until_served(client: Client, clock: Clock, name: str) -> None:
    until = clock.monotonic() + _READY_WITHIN
    while True:
        if _is_established(await client.get(_DEFINITIONS, name)):
            return
        if clock.monotonic() > until:
            raise TimeoutError(f"{name} is not served after {_READY_WITHIN:.0f} s")
        await clock.sleep(_POLL_INTERVAL)


def _is_established(definition: Obj) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
