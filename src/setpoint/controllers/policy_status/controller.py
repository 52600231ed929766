"""Type-checks every changed policy and writes the findings to its status."""

from __future__ import annotations

from typing import Any

from setpoint.client.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.policy_status.matched_kinds import kind_of, matched_kinds
from setpoint.controllers.policy_status.schemas import SchemaSource
from setpoint.kinds.expression_type_checks import TypedKind, TypedPolicy
from setpoint.reconcile import Controller, Manager

Obj = dict[str, Any]

POLICIES = builtin("validatingadmissionpolicies", "admissionregistration.k8s.io")
_NAME = "validatingadmissionpolicy-status-controller"
_MANAGER = "validatingadmissionpolicy-status"
_WORKERS = 5


def policy_status_controller(manager: Manager, _: ControllerOptions) -> Controller:
    client, policies = manager.client_for(_NAME), manager.informer(POLICIES)

    async def reconcile(key: str) -> None:
        policy = policies.get(key)
        if policy is None:
            return
        generation = policy["metadata"]["generation"]
        if generation <= ((policy.get("status") or {}).get("observedGeneration") or 0):
            return
        found = await warnings(policy, client)
        status = {
            "observedGeneration": generation,
            "typeChecking": {"expressionWarnings": found} if found else {},
        }
        wanted = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": {"name": key}}
        await client.apply(wanted | {"status": status}, field_manager=_MANAGER, force=True, subresource="status")

    controller = Controller(_NAME, reconcile, manager.clock, workers=_WORKERS)
    policies.add_handler(lambda _, new: None if new is None else controller.enqueue(str(new["metadata"]["name"])))
    return controller


async def warnings(policy: Obj, client: Client) -> list[Obj]:
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
            kind_of(param_kind["apiVersion"], param_kind["kind"]), f"{param_kind['kind']}Params"
        )
    variables = tuple((each["name"], each["expression"]) for each in spec.get("variables") or ())
    checked = TypedPolicy(kinds, bool(param_kind), params, variables)
    found_warnings: list[Obj] = []
    for at, validation in enumerate(spec.get("validations") or ()):
        for name in ("expression", "messageExpression"):
            text = validation.get(name)
            said = checked.problems(text) if text else ""
            if said:
                found_warnings.append({"fieldRef": f"spec.validations[{at}].{name}", "warning": said})
    return found_warnings
