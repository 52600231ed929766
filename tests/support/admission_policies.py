"""Builders of policies and bindings."""

from __future__ import annotations

from typing import Any

from custom_resource_harness import CustomResourceHarness

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CORE = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default"


def rule(*resources: str, group: str = "", operations: tuple[str, ...] = ("CREATE", "UPDATE"), **more: Any) -> Any:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": list(resources),
        **more,
    }


def policy(name: str, *expressions: Any, rules: list[Any] | None = None, **spec: Any) -> dict[str, Any]:
    validations = [{"expression": one} if isinstance(one, str) else one for one in expressions]
    match = {"resourceRules": rules or [rule("configmaps")], **spec.pop("match", {})}
    return {"metadata": {"name": name}, "spec": {"matchConstraints": match, "validations": validations, **spec}}


def binding(name: str, to: str, actions: tuple[str, ...] = ("Deny",), **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"policyName": to, "validationActions": list(actions), **spec}}


async def enforce(harness: CustomResourceHarness, made: dict[str, Any], *actions: str, **spec: Any) -> None:
    """Creates the policy with one binding `b`."""
    name = made["metadata"]["name"]
    await harness.make(f"{REGISTRATION}/validatingadmissionpolicies", made)
    bound = binding(f"{name}-b", name, actions or ("Deny",), **spec)
    await harness.make(f"{REGISTRATION}/validatingadmissionpolicybindings", bound)


def config(name: str = "c", data: dict[str, str] | None = None, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "data": data or {"k": "v"}}


def deployment(name: str, replicas: int) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}
