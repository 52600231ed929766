"""What an administrator says of single plugins, in documents of upstream's formats.

Each reader takes the document of its plugin, None if there is none, and raises FileProblem where it makes no sense.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from setpoint.apiserver.admission.event_rate_limit import LIMIT_TYPES, Limit
from setpoint.apiserver.config_files import NUMBER, TEXT, FileProblem, document, many, read_config, struct
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.field import Errors, aggregate_message, invalid, not_supported, required

Obj = dict[str, Any]

_LIMIT = struct("v1alpha1.Limit", type=TEXT, qps=NUMBER, burst=NUMBER, cacheSize=NUMBER)
_LIMITS = {
    ("eventratelimit.admission.k8s.io/v1alpha1", "Configuration"): document(
        "v1alpha1.Configuration", limits=many(_LIMIT)
    )
}
_SCOPE = struct("v1.ScopedResourceSelectorRequirement", scopeName=TEXT, operator=TEXT, values=many(TEXT))
_LIMITED = struct(
    "v1.LimitedResource", apiGroup=TEXT, resource=TEXT, matchContains=many(TEXT), matchScopes=many(_SCOPE)
)
_QUOTA = document("v1.Configuration", limitedResources=many(_LIMITED))
_QUOTAS = {
    ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"): _QUOTA,
    ("resourcequota.admission.k8s.io/v1beta1", "Configuration"): _QUOTA,
    ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"): _QUOTA,
}
_SELECTORS = "podNodeSelectorPluginConfig"
_MANIFESTS = "staticManifestsDir"
_ABSOLUTE = "must be an absolute file path"
_WEBHOOKS = {
    ("apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"): document(
        "v1.WebhookAdmission", kubeConfigFile=TEXT, staticManifestsDir=TEXT
    )
}


def read_event_limits(data: bytes | None) -> list[Limit]:
    given = (read_config(data, _LIMITS).get("limits") or []) if data else []
    errs: Errors = [] if given else [invalid("limits", None, "must not be empty")]
    limits = []
    for at, one in enumerate(given):
        type_, qps, burst, cache = (one.get(key, 0) for key in ("type", "qps", "burst", "cacheSize"))
        path = f"limits[{at}]"
        if type_ not in LIMIT_TYPES:
            errs.append(not_supported(f"{path}.type", type_ or "", LIMIT_TYPES))
        for key, value in (("burst", burst), ("qps", qps)):
            if value <= 0:
                errs.append(invalid(f"{path}.{key}", value, "must be positive"))
        if type_ != "Server" and cache < 0:
            errs.append(invalid(f"{path}.cacheSize", cache, "must not be negative"))
        limits.append(Limit(type_, qps, burst, cache or Limit._field_defaults["cache_size"]))
    if errs:
        raise FileProblem(aggregate_message(errs))
    return limits


def read_node_selectors(data: bytes | None) -> dict[str, str]:
    """By namespace; under `clusterDefaultNodeSelector`: for those that say nothing."""
    if not data:
        return {}
    try:
        found = parse_yaml(data)[0]
    except BodyError as error:
        raise FileProblem(str(error)) from None
    selectors = found.get(_SELECTORS) or {} if isinstance(found, dict) else None
    if not isinstance(selectors, dict) or not all(isinstance(value, str) for value in selectors.values()):
        raise FileProblem(f"{_SELECTORS} must be a map from namespaces to labels")
    return selectors


def read_limited_resources(data: bytes | None) -> list[Obj]:
    """What may only be used where a quota speaks of it."""
    limited: list[Obj] = (read_config(data, _QUOTAS).get("limitedResources") or []) if data else []
    errs = [required(f"limitedResources[{at}].resource") for at, one in enumerate(limited) if not one.get("resource")]
    if errs:
        raise FileProblem(aggregate_message(errs))
    return limited


class WebhookSettings(NamedTuple):
    kubeconfig: str = ""
    """The file that says who we are to webhooks; empty: none does."""
    manifests: str = ""
    """The directory of those that come from files; empty: none do."""


def read_webhook_settings(data: bytes | None) -> WebhookSettings:
    if data is None:
        return WebhookSettings()
    found = read_config(data, _WEBHOOKS)
    path: str = found.get("kubeConfigFile", "")
    if path and not path.startswith("/"):
        raise FileProblem(invalid("kubeConfigFile", path, _ABSOLUTE).message())
    return WebhookSettings(path, _manifests(found))


def read_policy_manifests(data: bytes | None, kind: str) -> str:
    """The directory of policies that come from files; empty: none do."""
    if data is None:
        return ""
    known = {("apiserver.config.k8s.io/v1", kind): document(f"v1.{kind}", staticManifestsDir=TEXT)}
    return _manifests(read_config(data, known))


def _manifests(found: Obj) -> str:
    path: str = found.get(_MANIFESTS, "")
    if path and not path.startswith("/"):
        raise FileProblem(invalid(_MANIFESTS, path, _ABSOLUTE).message())
    return path


class TolerationSettings(NamedTuple):
    default: tuple[Obj, ...] = ()
    allowed: tuple[Obj, ...] = ()
    """Empty: all."""


def read_tolerations(data: bytes | None) -> TolerationSettings:
    if not data:
        return TolerationSettings()
    from setpoint.kinds.core.podspec.tolerations import validate_tolerations
    from setpoint.kinds.tables import type_of

    tolerations = many(type_of("io.k8s.api.core.v1.Toleration"))
    kind = document("v1alpha1.Configuration", default=tolerations, whitelist=tolerations)
    found = read_config(data, {("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration"): kind})
    errs: Errors = []
    for key in ("default", "whitelist"):
        validate_tolerations(found.get(key) or (), f"podtolerationrestriction.{key}", errs)
    if errs:
        raise FileProblem(f"invalid config: [{', '.join(error.message() for error in errs)}]")
    return TolerationSettings(tuple(found.get("default") or ()), tuple(found.get("whitelist") or ()))
