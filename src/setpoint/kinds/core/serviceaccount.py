"""ServiceAccount: who a Pod is."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Context, Obj, Strategy

_ENFORCE_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"
_ENFORCE_WARNING = (
    f"metadata.annotations[{_ENFORCE_MOUNTABLE}]: deprecated in v1.32+; "
    "prefer separate namespaces to isolate access to mounted secrets"
)


class ServiceAccountStrategy(Strategy):
    columns = (NAME, AGE)
    returns_deleted = True

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        secrets = obj.get("secrets")
        if secrets:
            # Only the name of a secret means anything here.
            obj["secrets"] = [{"name": ref["name"]} if ref.get("name") else {} for ref in secrets]

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.prepare_for_create(obj, ctx)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return [_ENFORCE_WARNING] if _ENFORCE_MOUNTABLE in (obj["metadata"].get("annotations") or {}) else []

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        if _ENFORCE_MOUNTABLE in (old["metadata"].get("annotations") or {}):
            return []
        return self.warnings_on_create(obj, ctx)


STRATEGY = ServiceAccountStrategy()
