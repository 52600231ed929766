"""The audit policy (audit.k8s.io/v1 Policy): which requests are logged, and at which level."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from setpoint.apiserver.config_files import SWITCH, TEXT, Explicit, document, many, struct
from setpoint.apiserver.filters.authorize import Access
from setpoint.meta.body import BodyError, parse_yaml, type_meta
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.field import Errors, aggregate_message, invalid, not_supported, required
from setpoint.meta.names import dns1123_subdomain
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Shape, Type

log = logging.getLogger("setpoint.apiserver")

GROUP_VERSION = "audit.k8s.io/v1"
NONE, METADATA, REQUEST, REQUEST_RESPONSE = range(4)
LEVELS = ("None", "Metadata", "Request", "RequestResponse")
RECEIVED, STARTED, COMPLETE, PANIC = STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
_SCHEME = "pkg/audit/scheme.go:30"
_GROUP = struct("v1.GroupResources", group=TEXT, resources=many(TEXT), resourceNames=many(TEXT))
_RULE = struct(
    "v1.PolicyRule",
    level=TEXT,
    users=many(TEXT),
    userGroups=many(TEXT),
    verbs=many(TEXT),
    resources=many(_GROUP),
    namespaces=many(TEXT),
    nonResourceURLs=many(TEXT),
    omitStages=many(TEXT),
    omitManagedFields=Explicit(SWITCH),
)
_POLICY = document(
    "v1.Policy", metadata=Type(Shape.ANY), rules=many(_RULE), omitStages=many(TEXT), omitManagedFields=SWITCH
)


class PolicyError(ValueError):
    """The policy is invalid; the message is upstream's."""


class AuditConfig(NamedTuple):
    """The level and options for one request."""

    level: int
    """Index in LEVELS."""
    omit: frozenset[str]
    """Stages for which no event is generated."""
    omit_managed_fields: bool


class _Group(NamedTuple):
    group: str
    resources: frozenset[str]
    names: frozenset[str]

    def matches(self, access: Access) -> bool:
        if self.group not in (access.group, "*"):
            return False
        resources = self.resources
        if not resources:
            return True
        if self.names and access.name not in self.names:
            return False
        resource, subresource = access.resource, access.subresource
        combined = f"{resource}/{subresource}" if subresource else resource
        return (
            combined in resources
            or "*" in resources
            or (bool(subresource) and f"*/{subresource}" in resources)
            or f"{resource}/*" in resources
        )


class _Rule(NamedTuple):
    config: AuditConfig
    users: frozenset[str]
    groups: frozenset[str]
    verbs: frozenset[str]
    namespaces: frozenset[str]
    resources: tuple[_Group, ...]
    paths: tuple[str, ...]

    def matches(self, access: Access) -> bool:
        if self.users and access.user.name not in self.users:
            return False
        if self.groups and self.groups.isdisjoint(access.user.groups):
            return False
        if self.verbs and access.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            return self._matches_resource(access)
        return not self.paths or (access.path is not None and _matches_path(self.paths, access.path))

    def _matches_resource(self, access: Access) -> bool:
        if access.path is not None:
            return False
        if self.namespaces and access.namespace not in self.namespaces:
            return False
        return not self.resources or any(group.matches(access) for group in self.resources)


def _matches_path(specs: Sequence[str], path: str) -> bool:
    return any(spec in ("*", path) or (spec.endswith("*") and path.startswith(spec.rstrip("*"))) for spec in specs)


class Policy:
    """The rules of an audit policy."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = tuple(rules)

    def config_for(self, access: Access) -> AuditConfig | None:
        """Return the configuration of the first matching rule, or None if the request is not logged."""
        for rule in self._rules:
            if rule.matches(access):
                return rule.config if rule.config.level else None
        return None


# -- reading ----------------------------------------------------------------------------------------------------------


def read_policy(data: bytes) -> Policy:
    """Read and validate a policy. Unknown fields are ignored with a warning. Raises PolicyError."""
    try:
        value, found = parse_yaml(data)
        api_version, kind = type_meta({} if value is None else value)
        if not api_version:
            raise PolicyError("unknown group version field audit.k8s.io/__internal, Kind=Policy in policy")
        if (api_version, kind or "Policy") != (GROUP_VERSION, "Policy"):
            raise PolicyError(_unknown(api_version, kind))
        policy: Obj = decode(_POLICY, value, strict=found)
    except (BodyError, DecodeError) as error:
        raise PolicyError(f"failed decoding: {error}") from None
    if found:
        log.warning(
            "Audit policy contains errors, falling back to lenient decoding: strict decoding error: %s",
            ", ".join(found),
        )
    errs = _validate(policy)
    if errs:
        raise PolicyError(aggregate_message(errs))
    if not policy.get("rules"):
        raise PolicyError("loaded illegal policy with 0 rules")
    return _policy(policy)


def _unknown(api_version: str, kind: str) -> str:
    return f'failed decoding: no kind "{kind}" is registered for version "{api_version}" in scheme "{_SCHEME}"'


def _policy(policy: Obj) -> Policy:
    omitted_stages = frozenset(policy.get("omitStages") or ())
    managed = bool(policy.get("omitManagedFields"))
    return Policy([_rule(rule, omitted_stages, managed) for rule in policy["rules"]])


def _rule(rule: Obj, omitted_stages: frozenset[str], managed: bool) -> _Rule:
    own = rule.get("omitManagedFields")
    config = AuditConfig(
        LEVELS.index(rule["level"]),
        omitted_stages | frozenset(rule.get("omitStages") or ()),
        managed if own is None else bool(own),
    )

    def texts(name: str) -> frozenset[str]:
        return frozenset(rule.get(name) or ())

    groups = tuple(
        _Group(
            each.get("group") or "", frozenset(each.get("resources") or ()), frozenset(each.get("resourceNames") or ())
        )
        for each in rule.get("resources") or ()
    )
    paths = tuple(rule.get("nonResourceURLs") or ())
    return _Rule(config, texts("users"), texts("userGroups"), texts("verbs"), texts("namespaces"), groups, paths)


# -- validating -------------------------------------------------------------------------------------------------------


def _validate(policy: Obj) -> Errors:
    errs: Errors = []
    _validate_stages(policy.get("omitStages") or (), "omitStages", errs)
    for at, rule in enumerate(policy.get("rules") or ()):
        _validate_rule(rule, f"rules[{at}]", errs)
    return errs


def _validate_rule(rule: Obj, path: str, errs: Errors) -> None:
    level, urls = rule.get("level") or "", rule.get("nonResourceURLs") or []
    if not level:
        errs.append(required(f"{path}.level"))
    elif level not in LEVELS:
        errs.append(not_supported(f"{path}.level", level, LEVELS))
    for at, url in enumerate(urls):
        if url == "*":
            continue
        where = f"{path}.nonResourceURLs[{at}]"
        if not url.startswith("/"):
            errs.append(invalid(where, url, "non-resource URL rules must begin with a '/' character"))
        if "*" in url[:-1]:
            errs.append(invalid(where, url, "non-resource URL wildcards '*' must be the final character of the rule"))
    _validate_resources(rule.get("resources") or (), f"{path}.resources", errs)
    _validate_stages(rule.get("omitStages") or (), f"{path}.omitStages", errs)
    if urls and (rule.get("resources") or rule.get("namespaces")):
        text = "rules cannot apply to both regular resources and non-resource URLs"
        errs.append(invalid(f"{path}.nonResourceURLs", urls, text))


def _validate_resources(resources: Sequence[Obj], path: str, errs: Errors) -> None:
    for each in resources:
        group = each.get("group") or ""
        if group and group != "*":
            problems = dns1123_subdomain(group)
            if problems:
                errs.append(invalid(f"{path}.group", group, ",".join(problems)))
        if each.get("resourceNames") and not each.get("resources"):
            text = "using resourceNames requires at least one resource"
            errs.append(invalid(f"{path}.resourceNames", each["resourceNames"], text))


def _validate_stages(stages: Sequence[str], path: str, errs: Errors) -> None:
    for at, stage in enumerate(stages):
        if stage not in STAGES:
            errs.append(invalid(f"{path}[{at}]", stage, "allowed stages are " + ",".join(STAGES)))
