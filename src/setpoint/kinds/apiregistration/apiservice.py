"""APIService: a group version, answered by this server or by one behind a service."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.bootstrap.initial_objects import local_status
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.configmap import decoded_length
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.meta.conditions import condition_of
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.names import dns1035_label, dns1123_subdomain, path_segment, port_number
from setpoint.meta.objects import Obj

_STATUSES = ("True", "False", "Unknown")


def _service(obj: Obj, now: datetime) -> str:
    service = obj["spec"].get("service")
    return "Local" if service is None else f"{service.get('namespace', '')}/{service.get('name', '')}"


def _available(obj: Obj, now: datetime) -> str:
    condition = condition_of(obj, "Available")
    if condition is None:
        return "Unknown"
    status, reason = str(condition.get("status", "")), condition.get("reason")
    return f"{status} ({reason})" if reason and status != "True" else status


class APIServiceStrategy(Strategy):
    qualified_finalizers = False
    allow_unconditional_update = False
    has_status = True
    columns = (
        NAME,
        Column("Service", _service, description="Who answers."),
        Column("Available", _available, description="Whether it can be reached."),
        AGE,
    )

    def __init__(self) -> None:
        self.subresources = {"status": APIServiceStatusStrategy(self)}

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return []  # depends on the spec: see validate

    def default(self, obj: Obj) -> None:
        service = obj["spec"].get("service")
        if service is not None and service.get("port") is None:
            service["port"] = 443

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        obj["status"] = local_status(ctx.now) if obj["spec"].get("service") is None else {}

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        meta, spec = obj["metadata"], obj["spec"]
        group, version = spec.get("group", ""), spec.get("version", "")
        wanted = f"{version}.{group}"
        for field in ("generateName", "name"):
            if name := meta.get(field):
                texts = path_segment(name)
                if not texts and name != wanted:
                    texts = [f'must be `spec.version+"."+spec.group`: "{wanted}"']
                errs.extend(invalid(f"metadata.{field}", name, text) for text in texts)
        if not group and version != "v1":
            text = "only v1 may have an empty group and it better be legacy kube"
            errs.append(required("spec.group", text))
        if group:
            errs.extend(invalid("spec.group", group, text) for text in dns1123_subdomain(group))
        errs.extend(invalid("spec.version", version, text) for text in dns1035_label(version))
        for name, limit in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
            priority = spec.get(name, 0)
            if not 0 < priority <= limit:
                errs.append(invalid(f"spec.{name}", priority, f"must be positive and less than {limit}"))
        self._validate_server(obj, errs)

    def _validate_server(self, obj: Obj, errs: Errors) -> None:
        spec = obj["spec"]
        service, bundle, insecure = spec.get("service"), spec.get("caBundle"), spec.get("insecureSkipTLSVerify")
        if service is None:
            if bundle:
                shown = f"{decoded_length(bundle)} bytes"
                errs.append(invalid("spec.caBundle", shown, "local APIServices may not have a caBundle"))
            if insecure:
                text = "local APIServices may not have insecureSkipTLSVerify"
                errs.append(invalid("spec.insecureSkipTLSVerify", True, text))
            return
        for name in ("namespace", "name"):
            if not service.get(name):
                errs.append(required(f"spec.service.{name}"))
        port = service.get("port") or 0
        if texts := port_number(port):
            errs.append(invalid("spec.service.port", port, "port is not valid: " + ", ".join(texts)))
        if insecure and bundle:
            errs.append(invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present"))


class APIServiceStatusStrategy(StatusStrategy):
    qualified_finalizers = False
    allow_unconditional_update = False

    @property
    def resets(self) -> tuple[str, ...]:
        return ("spec", "metadata")

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        meta, old_meta = obj["metadata"], old["metadata"]
        for name in ("labels", "annotations", "finalizers", "ownerReferences"):
            if name in old_meta:
                meta[name] = old_meta[name]
            else:
                meta.pop(name, None)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        for i, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
            status = condition.get("status", "")
            if status not in _STATUSES:
                errs.append(not_supported(f"status.conditions[{i}].status", status, _STATUSES))


STRATEGY = APIServiceStrategy()
