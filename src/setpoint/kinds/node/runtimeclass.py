"""RuntimeClass: selects the container runtime handler that runs a Pod."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec.options import CREATE
from setpoint.kinds.core.podspec.resources import validate_overhead
from setpoint.kinds.core.podspec.scheduling import validate_tolerations
from setpoint.kinds.core.podspec.warnings import DEPRECATED_NODE_LABELS
from setpoint.kinds.internal_form import internal
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, duplicate, invalid, required
from setpoint.meta.names import dns1123_label, max_bytes, max_length
from setpoint.meta.objectmeta import IMMUTABLE, validate_labels
from setpoint.meta.objects import Obj


class RuntimeClassStrategy(Strategy):
    qualified_finalizers = False
    columns = (
        NAME,
        Column("Handler", lambda obj, now: obj.get("handler", ""), description="Handler that the runtime knows."),
        AGE,
    )
    allow_create_on_update = True
    allow_unconditional_update = False

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_parts(obj, errs)
        _validate_handler(obj.get("handler", ""), errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        handler = obj.get("handler", "")
        changed = handler != old.get("handler", "")
        if changed and handler:
            errs.extend(invalid("handler", handler, text) for text in dns1123_label(handler))
        _validate_parts(obj, errs)
        if changed:
            errs.append(invalid("handler", None, IMMUTABLE))
            if not handler:
                errs.append(required("handler"))

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        selector = (obj.get("scheduling") or {}).get("nodeSelector") or {}
        return [
            f"scheduling.nodeSelector: {DEPRECATED_NODE_LABELS[key]}"
            for key in selector
            if key in DEPRECATED_NODE_LABELS
        ]


def _validate_handler(handler: str, errs: Errors) -> None:
    if not handler:
        errs.append(required("handler"))
        return
    for text in dns1123_label(handler):
        # Messages of declarative rules count bytes where handwritten ones count characters.
        errs.append(invalid("handler", handler, max_bytes(63) if text == max_length(63) else text))


def _validate_parts(obj: Obj, errs: Errors) -> None:
    overhead, scheduling = obj.get("overhead"), obj.get("scheduling")
    if overhead is not None:
        validate_overhead(overhead.get("podFixed") or {}, "overhead", errs, options=CREATE)
    if scheduling is None:
        return
    validate_labels(scheduling.get("nodeSelector"), "scheduling.nodeSelector", errs)
    tolerations = scheduling.get("tolerations") or []
    path = "scheduling.tolerations"
    validate_tolerations(tolerations, path, errs)
    seen = set()
    for i, toleration in enumerate(tolerations):
        key = tuple(toleration.get(name, "") for name in ("key", "operator", "value", "effect"))
        if key in seen:
            errs.append(duplicate(f"{path}[{i}]", internal("Toleration", toleration)))
        seen.add(key)


STRATEGY = RuntimeClassStrategy()
