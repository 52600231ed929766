"""ResourceClaimTemplate: the template of claims that are created for single pods."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec.claims import validate_template_meta
from setpoint.kinds.internal_form import struct
from setpoint.kinds.resource.claims import CLAIM_FORM, default_claim, drop_disabled, validate_claim
from setpoint.kinds.strategy import Context, Strategy
from setpoint.meta.field import Errors, invalid
from setpoint.meta.objectmeta import IMMUTABLE
from setpoint.meta.objects import Obj

_show_claim = struct(CLAIM_FORM)


class ResourceClaimTemplateStrategy(Strategy):
    returns_deleted = True
    columns = (NAME, AGE)

    def default(self, obj: Obj) -> None:
        default_claim(obj["spec"].get("spec") or {})

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        drop_disabled(obj["spec"].get("spec") or {})

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        drop_disabled(obj["spec"].get("spec") or {})

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        late: Errors = []
        self._validate(obj, errs, late)
        errs.extend(late)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        late: Errors = []
        self._validate(obj, errs, late)
        spec = obj["spec"]
        if spec != old["spec"]:
            meta = {key: value for key, value in (spec.get("metadata") or {}).items() if value}
            errs.append(invalid("spec", {**meta, "Spec": _show_claim(spec.get("spec"))}, IMMUTABLE))
        errs.extend(late)

    def _validate(self, obj: Obj, errs: Errors, late: Errors) -> None:
        spec = obj["spec"]
        validate_template_meta(spec.get("metadata") or {}, "spec.metadata", errs)
        validate_claim(spec.get("spec") or {}, "spec.spec", errs, late)


STRATEGY = ResourceClaimTemplateStrategy()
