"""The parameters of a policy, as a binding names them."""

from __future__ import annotations

from setpoint.apiserver.admission.dynamic.served import Kind, Served
from setpoint.apiserver.admission.plugin import Obj
from setpoint.apiserver.registry import Registry
from setpoint.meta.selectors import SelectorError, from_label_selector


class ConfigurationError(Exception):
    """A policy or binding cannot be used as it is."""


def param_registry(policy: Obj, served: Served) -> Registry | None:
    """Who keeps the parameters; None: the policy has none. Raises ConfigurationError."""
    param_kind = policy["spec"].get("paramKind")
    if param_kind is None:
        return None
    group, _, version = param_kind.get("apiVersion", "").rpartition("/")
    kind = Kind(group, version, param_kind.get("kind", ""))
    found = served.find(kind)
    if found is None:
        raise ConfigurationError(f"failed to find resource referenced by paramKind: '{kind}'")
    return found


async def params_of(registry: Registry | None, binding: Obj, namespace: str) -> list[Obj | None]:
    """One evaluation is due for each; None stands for no parameter at all. Raises ConfigurationError."""
    reference = binding["spec"].get("paramRef")
    if registry is None or reference is None:
        return [None]
    within = reference.get("namespace", "")
    if registry.resource.namespaced:
        within = within or namespace
        if not within:
            raise ConfigurationError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
    elif within:
        raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    name, selector = reference.get("name", ""), reference.get("selector")
    if name:
        entry = registry.cache.get(registry.key(within, name))
        entries = [] if entry is None else [entry]
    elif selector is not None:
        try:
            selects = from_label_selector(selector).matches
        except SelectorError as error:
            raise ConfigurationError(str(error)) from None
        entries = [entry for entry in registry.cache.scan(within) if selects(entry.obj["metadata"].get("labels") or {})]
    else:
        raise ConfigurationError("one of name or selector must be provided")
    if not entries and reference.get("parameterNotFoundAction") == "Deny":
        raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    if registry.encoding.remote:
        await registry.encoding.ready(entries)
    return [registry.encoding.shared(entry) for entry in entries]
