"""DeviceClass: a class of devices that claims can request, selected by expressions."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.resource.claims import validate_configuration, validate_selectors
from setpoint.kinds.resource.identifiers import oversized
from setpoint.kinds.strategy import Context, Strategy
from setpoint.meta.field import Errors, invalid
from setpoint.meta.names import dns1123_subdomain, qualified_name
from setpoint.meta.objects import Obj

_QUOTA_PREFIX, _NATIVE_DOMAIN = "requests.", "kubernetes.io/"


def _declared_extended_resource(name: str, path: str, late: Errors) -> None:
    if "/" not in name:
        text = "a name must be a domain-prefixed path, such as 'example.com/my-prop'"
        late.append(invalid(path, name, text))
    elif _NATIVE_DOMAIN in name:
        late.append(invalid(path, name, f'must not have "{_NATIVE_DOMAIN}" domain'))
    if name.startswith(_QUOTA_PREFIX):
        late.append(invalid(path, name, f'must not have "{_QUOTA_PREFIX}" prefix'))
    late.extend(invalid(path, name, text) for text in qualified_name(_QUOTA_PREFIX + name))


class DeviceClassStrategy(Strategy):
    returns_deleted = True
    has_generation = True
    columns = (NAME, AGE)

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return []  # Reported last: see `validate`.

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj, {}, errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj, old, errs)

    def _validate(self, obj: Obj, old: Obj, errs: Errors) -> None:
        name, spec, old_spec = obj["metadata"].get("name", ""), obj["spec"], old.get("spec")
        late: Errors = []
        if name and not old:
            late.extend(invalid("metadata.name", name, text) for text in dns1123_subdomain(name))
        selectors, configs = spec.get("selectors"), spec.get("config") or ()
        unchanged = old_spec is not None and selectors == old_spec.get("selectors")
        validate_selectors(selectors, "spec.selectors", errs, late, stored=unchanged)
        unchanged = old_spec is not None and configs == (old_spec.get("config") or ())
        if not oversized(configs, 32, "spec.config", late):
            for i, config in enumerate(configs):
                validate_configuration(config, f"spec.config[{i}]", errs, late, stored=unchanged)
        extended = spec.get("extendedResourceName")
        if extended is not None:
            _declared_extended_resource(extended, "spec.extendedResourceName", late)
        errs.extend(late)


STRATEGY = DeviceClassStrategy()
