"""Ingress: which host and path leads to which Service."""

from __future__ import annotations

from setpoint.kinds.cell_texts import NONE
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.addresses import ip_warnings, parse_sloppy, validate_ip
from setpoint.kinds.shared_names import validate_group, validate_segment
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.names import (
    dns1123_label,
    dns1123_subdomain,
    port_name,
    port_number,
    wildcard_dns1123_subdomain,
)
from setpoint.meta.objects import Obj

_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_NOT_AN_IP = "must be a DNS name, not an IP address"


class IngressStrategy(Strategy):
    has_status = True
    has_generation = True

    def default(self, obj: Obj) -> None:
        obj.setdefault("spec", {})

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        spec = obj.get("spec") or {}
        _validate_spec(spec, errs, allow_secret_names=False, allow_wildcard_rules=False)
        annotation = (obj["metadata"].get("annotations") or {}).get(_CLASS_ANNOTATION)
        class_name = spec.get("ingressClassName")
        if annotation is not None and class_name is not None and annotation != class_name:
            text = "must match `ingressClassName` when both are specified"
            errs.append(invalid(f"annotations.{_CLASS_ANNOTATION}", annotation, text))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        before = old.get("spec") or {}
        _validate_spec(
            obj.get("spec") or {},
            errs,
            allow_secret_names=any(_secret_name(tls.get("secretName", "")) for tls in before.get("tls", ())),
            allow_wildcard_rules=any(_is_bad_wildcard(rule) for rule in before.get("rules", ())),
        )

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        annotations = obj["metadata"].get("annotations") or {}
        if _CLASS_ANNOTATION in annotations and (obj.get("spec") or {}).get("ingressClassName") is None:
            return [f"annotation \"{_CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"]
        return []

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return []

    columns = (
        NAME,
        Column(
            "Class",
            lambda obj, now: (obj.get("spec") or {}).get("ingressClassName", NONE),
            description="Name of the IngressClass that serves it.",
        ),
        Column(
            "Hosts",
            lambda obj, now: _hosts((obj.get("spec") or {}).get("rules", [])),
            description="Hosts that are routed; all of them if none is named.",
        ),
        Column("Address", lambda obj, now: _addresses(obj), description="Where the load balancer listens."),
        Column(
            "Ports",
            lambda obj, now: "80, 443" if (obj.get("spec") or {}).get("tls") else "80",
            description="Ports of the load balancer.",
        ),
        AGE,
    )


class IngressStatusStrategy(StatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        known = {entry["ip"] for entry in _load_balancer(old) if entry.get("ip")}
        for i, entry in enumerate(_load_balancer(obj)):
            path = f"status.loadBalancer.ingress[{i}]"
            if entry.get("ip"):
                validate_ip(entry["ip"], f"{path}.ip", errs, known)
            hostname = entry.get("hostname")
            if hostname:
                errs.extend(invalid(f"{path}.hostname", hostname, text) for text in dns1123_subdomain(hostname))
                if parse_sloppy(hostname) is not None:
                    errs.append(invalid(f"{path}.hostname", hostname, _NOT_AN_IP))

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        warnings: list[str] = []
        for i, entry in enumerate(_load_balancer(obj)):
            if entry.get("ip"):
                warnings += ip_warnings(entry["ip"], f"status.loadBalancer.ingress[{i}]")
        return warnings


def _validate_spec(spec: Obj, errs: Errors, *, allow_secret_names: bool, allow_wildcard_rules: bool) -> None:
    rules, backend = spec.get("rules", []), spec.get("defaultBackend")
    if not rules and backend is None:
        errs.append(invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        _validate_backend(backend, "spec.defaultBackend", errs)
    for i, rule in enumerate(rules):
        _validate_rule(rule, f"spec.rules[{i}]", errs, allow_wildcard_rules)
    for i, tls in enumerate(spec.get("tls", ())):
        for j, host in enumerate(tls.get("hosts", ())):
            texts = wildcard_dns1123_subdomain(host) if "*" in host else dns1123_subdomain(host)
            errs.extend(invalid(f"spec.tls[{i}].hosts[{j}]", host, text) for text in texts)
        if not allow_secret_names:
            secret = tls.get("secretName", "")
            errs.extend(invalid(f"spec.tls[{i}].secretName", secret, text) for text in _secret_name(secret))
    class_name = spec.get("ingressClassName")
    if class_name is not None:
        errs.extend(invalid("spec.ingressClassName", class_name, text) for text in dns1123_subdomain(class_name))


def _secret_name(name: str) -> list[str]:
    return dns1123_subdomain(name) if name else []


def _is_bad_wildcard(rule: Obj) -> bool:
    if "*" not in rule.get("host", ""):
        return False
    found: Errors = []
    _validate_http(rule.get("http"), "", found)
    return bool(found)


def _validate_rule(rule: Obj, path: str, errs: Errors, allow_wildcard_rules: bool) -> None:
    host = rule.get("host", "")
    if host:
        if parse_sloppy(host) is not None:
            errs.append(invalid(f"{path}.host", host, _NOT_AN_IP))
        texts = wildcard_dns1123_subdomain(host) if "*" in host else dns1123_subdomain(host)
        errs.extend(invalid(f"{path}.host", host, text) for text in texts)
    if "*" not in host or not allow_wildcard_rules:
        _validate_http(rule.get("http"), f"{path}.http", errs)


def _validate_http(http: Obj | None, path: str, errs: Errors) -> None:
    if http is None:
        return
    paths = http.get("paths") or []
    if not paths:
        errs.append(required(f"{path}.paths"))
    for i, entry in enumerate(paths):
        _validate_path(entry, f"{path}.paths[{i}]", errs)


def _validate_path(entry: Obj, path: str, errs: Errors) -> None:
    kind, value = entry.get("pathType"), entry.get("path", "")
    if kind is None:
        errs.append(required(f"{path}.pathType", "pathType must be specified"))
        return
    if kind in ("Exact", "Prefix"):
        if not value.startswith("/"):
            errs.append(invalid(f"{path}.path", value, "must be an absolute path"))
        for sequence in ("//", "/./", "/../", "%2f", "%2F"):
            if sequence in value:
                errs.append(invalid(f"{path}.path", value, f"must not contain '{sequence}'"))
        for suffix in ("/..", "/."):
            if value.endswith(suffix):
                errs.append(invalid(f"{path}.path", value, f"cannot end with '{suffix}'"))
    elif kind == "ImplementationSpecific":
        if value and not value.startswith("/"):
            errs.append(invalid(f"{path}.path", value, "must be an absolute path"))
    else:
        errs.append(not_supported(f"{path}.pathType", kind, _PATH_TYPES))
    _validate_backend(entry.get("backend") or {}, f"{path}.backend", errs)


def _validate_backend(backend: Obj, path: str, errs: Errors) -> None:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        errs.append(invalid(path, "", "cannot set both resource and service backends"))
    elif resource is not None:
        validate_group(resource.get("apiGroup"), f"{path}.resource.apiGroup", errs)
        for name in ("kind", "name"):
            if not resource.get(name):
                errs.append(required(f"{path}.resource.{name}"))
            validate_segment(resource.get(name, ""), f"{path}.resource.{name}", errs)
    elif service is not None:
        _validate_service(service, path, errs)
    else:
        errs.append(invalid(path, "", "resource or service backend is required"))


def _validate_service(service: Obj, path: str, errs: Errors) -> None:
    name = service.get("name", "")
    if not name:
        errs.append(required(f"{path}.service.name"))
    else:
        errs.extend(invalid(f"{path}.service.name", name, text) for text in dns1123_label(name))
    port = service.get("port") or {}
    named, number = port.get("name", ""), port.get("number", 0)
    if named and number:
        errs.append(invalid(path, "", "cannot set both port name & port number"))
    elif named:
        errs.extend(invalid(f"{path}.service.port.name", named, text) for text in port_name(named))
    elif number:
        errs.extend(invalid(f"{path}.service.port.number", number, text) for text in port_number(number))
    else:
        errs.append(required(path, "port name or number is required"))


def _load_balancer(obj: Obj) -> list[Obj]:
    return ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []


def _hosts(rules: list[Obj]) -> str:
    shown: list[str] = []
    more = False
    for rule in rules:
        if len(shown) == 3:
            more = True
            break
        if rule.get("host"):
            shown.append(rule["host"])
    if not shown:
        return "*"
    text = ",".join(shown)
    return f"{text} + {len(rules) - 3} more..." if more else text


def _addresses(obj: Obj) -> str:
    found = {entry.get("ip") or entry.get("hostname") for entry in _load_balancer(obj)}
    return ",".join(sorted(address for address in found if address))


STRATEGY = IngressStrategy()
STRATEGY.subresources = {"status": IngressStatusStrategy(STRATEGY)}
