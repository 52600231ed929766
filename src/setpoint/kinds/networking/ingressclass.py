"""IngressClass: the controller behind a class of Ingresses."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.cell_texts import NONE
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.shared_names import (
    validate_domain_prefixed_path,
    validate_group,
    validate_segment,
)
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required, too_long
from setpoint.meta.names import dns1123_label
from setpoint.meta.objectmeta import validate_immutable
from setpoint.meta.objects import Obj

_DEFAULT_ANNOTATION = "ingressclass.kubernetes.io/is-default-class"


class IngressClassStrategy(Strategy):
    has_generation = True

    def default(self, obj: Obj) -> None:
        parameters = obj.setdefault("spec", {}).get("parameters")
        if parameters is not None and parameters.get("scope") is None:
            parameters["scope"] = "Cluster"

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        spec = obj.get("spec") or {}
        controller, parameters = spec.get("controller", ""), spec.get("parameters")
        if len(controller.encode()) > 250:
            errs.append(too_long("spec.controller", 250))
        validate_domain_prefixed_path(controller, "spec.controller", errs)
        if parameters is not None:
            _validate_parameters(parameters, "spec.parameters", errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        before = (old.get("spec") or {}).get("controller", "")
        validate_immutable((obj.get("spec") or {}).get("controller", ""), before, "spec.controller", errs)
        self.validate(obj, errs, ctx)

    columns = (
        Column("Name", lambda obj, now: _name(obj, now), format=NAME.format, description=NAME.description),
        Column(
            "Controller",
            lambda obj, now: (obj.get("spec") or {}).get("controller", ""),
            description="Who serves Ingresses of this class.",
        ),
        Column("Parameters", lambda obj, now: _parameters(obj), description="Where its settings are."),
        AGE,
    )


def _validate_parameters(parameters: Obj, path: str, errs: Errors) -> None:
    validate_group(parameters.get("apiGroup"), f"{path}.apiGroup", errs)
    for name in ("kind", "name"):
        validate_segment(parameters.get(name, ""), f"{path}.{name}", errs)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        errs.append(required(f"{path}.scope"))
    elif scope not in ("Cluster", "Namespace"):
        errs.append(not_supported(f"{path}.scope", scope, ("Cluster", "Namespace")))
    elif scope == "Namespace":
        if namespace is None:
            errs.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
        else:
            errs.extend(invalid(f"{path}.namespace", namespace, text) for text in dns1123_label(namespace))
    elif namespace is not None:
        errs.append(forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))
    # Upstream declares these rules at the type and therefore reports them last.
    for name in ("kind", "name"):
        if not parameters.get(name):
            errs.append(required(f"{path}.{name}"))


def _name(obj: Obj, now: datetime) -> str:
    name: str = NAME.cell(obj, now)
    is_default = (obj["metadata"].get("annotations") or {}).get(_DEFAULT_ANNOTATION) == "true"
    return f"{name} (default)" if is_default else name


def _parameters(obj: Obj) -> str:
    parameters = (obj.get("spec") or {}).get("parameters")
    if parameters is None:
        return NONE
    group = parameters.get("apiGroup")
    kind = parameters.get("kind", "") + (f".{group}" if group is not None else "")
    return f"{kind}/{parameters.get('name', '')}"


STRATEGY = IngressClassStrategy()
