"""Configured authorizers: the AuthorizationConfiguration file, which lists them in order, and webhooks.

A webhook is sent SubjectAccessReviews, and its answers are cached. Match conditions are expressions over the
SubjectAccessReview; the webhook is asked only if all of them hold.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from setpoint.apiserver.config_files import (
    DURATION,
    SWITCH,
    TEXT,
    Explicit,
    FileProblem,
    document,
    many,
    read_config,
    struct,
)
from setpoint.apiserver.filters.authorize import Access, Decision, Problem, Rules, Ruling
from setpoint.apiserver.kubeconfig_webhooks import ReviewWebhook
from setpoint.apiserver.webhook_client import WebhookError
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.caching import TtlCache
from setpoint.meta.cel import (
    BOOL,
    STRING,
    CelError,
    CelProblem,
    Environment,
    Program,
    StructType,
    kubernetes_environment,
    list_of,
    map_of,
)
from setpoint.meta.cel.types import declared_name
from setpoint.meta.clock import Clock
from setpoint.meta.field import (
    Errors,
    aggregate_message,
    duplicate,
    internal,
    invalid,
    not_supported,
    required,
    too_many,
)
from setpoint.meta.goformat import aggregate
from setpoint.meta.names import dns1123_subdomain
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import Requirement
from setpoint.meta.times import format_duration, parse_duration

_COST_LIMIT = 10_000_000
_REQUIREMENT = StructType(
    "kubernetes.SelectorRequirement", {"key": STRING, "operator": STRING, "values": list_of(STRING)}
)
_SELECTOR = {"rawSelector": STRING, "requirements": list_of(_REQUIREMENT.type)}
_FIELDS = StructType("kubernetes.FieldSelectorAttributes", _SELECTOR)
_LABELS = StructType("kubernetes.LabelSelectorAttributes", _SELECTOR)
_ATTRIBUTES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_RESOURCE = StructType(
    "kubernetes.ResourceAttributes",
    {**dict.fromkeys(_ATTRIBUTES, STRING), "fieldSelector": _FIELDS.type, "labelSelector": _LABELS.type},
)
_NON_RESOURCE = StructType("kubernetes.NonResourceAttributes", {"path": STRING, "verb": STRING})
_SPEC = StructType(
    "kubernetes.SubjectAccessReviewSpec",
    {
        "resourceAttributes": _RESOURCE.type,
        "nonResourceAttributes": _NON_RESOURCE.type,
        "user": STRING,
        "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
        "uid": STRING,
    },
)
_MAX_CACHED_ANSWERS = 8192
_MAX_CACHED_LENGTH = 10_000
"""Total length of the client-controlled attributes up to which an answer is cached, to bound the memory."""
_FIELD_OPERATORS = {"=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn"}
_LABEL_OPERATORS = {**_FIELD_OPERATORS, "exists": "Exists", "!": "DoesNotExist"}
log = logging.getLogger("setpoint.apiserver")
_MODES = ("ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook")
_MAX_MATCH_CONDITIONS = 64
_MAX_TIMEOUT = 30_000_000_000


@cache
def _environment() -> Environment:
    structs = (_REQUIREMENT, _FIELDS, _LABELS, _RESOURCE, _NON_RESOURCE, _SPEC)
    return kubernetes_environment(stored=True).extended({"request": _SPEC.type}, structs)


class InvalidCondition(ValueError):
    """An expression cannot be used; the message is upstream's."""


def compile_condition(text: str) -> Program:
    """Compile a match condition. Raises InvalidCondition."""
    try:
        program = _environment().compile(text)
    except CelProblem as problem:
        raise InvalidCondition(f"compilation failed: {problem}") from None
    except CelError as error:
        raise InvalidCondition(f"program instantiation failed: {error}") from None
    if program.result != BOOL:
        raise InvalidCondition(f"must evaluate to {declared_name(BOOL)} but got {declared_name(program.result)}")
    return program


class MatchConditions:
    """Compiled match conditions."""

    def __init__(self, expressions: Sequence[str]) -> None:
        self._programs = [compile_condition(text) for text in expressions]

    def match(self, spec: Mapping[str, Any]) -> bool | Problem:
        """Return whether all conditions hold. A false one decides; otherwise an evaluation error is returned as a
        Problem."""
        if not self._programs:
            return True
        request = _with_empty_fields(spec)
        problems: list[str] = []
        for program in self._programs:
            outcome = program.evaluate({"request": request}, _COST_LIMIT)
            if outcome.error is not None:
                text = f"expression '{program.text}' resulted in error: {outcome.error}"
                problems.append(f"cel evaluation error: {text}")
            elif outcome.value is not True:
                return False
        return Problem(aggregate(problems)) if problems else True


def _with_empty_fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specification with empty strings for missing fields, so that expressions need not test for them."""
    shown: dict[str, Any] = {
        "user": spec.get("user", ""),
        "uid": spec.get("uid", ""),
        "groups": spec.get("groups") or [],
        "extra": spec.get("extra") or {},
    }
    attributes, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if attributes is not None:
        selectors = {name: attributes[name] for name in ("fieldSelector", "labelSelector") if name in attributes}
        shown["resourceAttributes"] = {name: attributes.get(name, "") for name in _ATTRIBUTES} | selectors
    if other is not None:
        shown["nonResourceAttributes"] = {"path": other.get("path", ""), "verb": other.get("verb", "")}
    return shown


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """The options of a webhook authorizer."""

    name: str = "default"
    version: str = "v1beta1"
    """Version of the SubjectAccessReview."""
    allowed_ttl: float = 300.0
    """Seconds for which an allowing answer is cached."""
    denied_ttl: float = 30.0
    """Seconds for which any other answer is cached."""
    denies_on_failure: bool = False
    """Whether a failure of the webhook denies the request; otherwise the webhook has no opinion."""


class WebhookAuthorizer:
    def __init__(
        self, webhook: ReviewWebhook, clock: Clock, options: WebhookOptions, conditions: MatchConditions | None = None
    ) -> None:
        self.name = options.name
        self._webhook = webhook
        self._options = options
        self._api_version = f"authorization.k8s.io/{options.version}"
        self._conditions = conditions
        self._on_failure = Decision.DENY if options.denies_on_failure else Decision.NO_OPINION
        self._cache: TtlCache[bytes, Obj] = TtlCache(_MAX_CACHED_ANSWERS, clock)

    def authorize(self, access: Access) -> Ruling | Awaitable[Ruling]:
        spec = spec_of(access)
        if self._conditions is not None:
            holds = self._conditions.match(spec)
            if isinstance(holds, Problem):
                return self._on_failure, holds
            if not holds:
                return Decision.NO_OPINION, ""
        key = orjson.dumps(spec)
        cached = self._cache.get(key)
        if cached is not None:
            return _ruling(cached)
        return self._ask(spec, key, access)

    async def _ask(self, spec: Obj, key: bytes, access: Access) -> Ruling:
        try:
            status = await self._webhook.request_status(self._api_version, "SubjectAccessReview", spec)
        except WebhookError as problem:
            log.error("Failed to make webhook authorizer request: %s", problem)
            return self._on_failure, Problem(str(problem))
        ttl = self._options.allowed_ttl if status.get("allowed") is True else self._options.denied_ttl
        if ttl > 0 and _length(access) < _MAX_CACHED_LENGTH:
            self._cache.put(key, status, ttl)
        return _ruling(status)

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        return Rules([], ["webhook authorizer does not support user rule resolution"], True)


def _ruling(status: Obj) -> Ruling:
    allowed, denied, reason = status.get("allowed") is True, status.get("denied") is True, status.get("reason")
    text = reason if isinstance(reason, str) else ""
    if allowed and denied:
        return Decision.DENY, Problem("webhook subject access review returned both allow and deny response", text)
    if denied:
        return Decision.DENY, text
    return (Decision.ALLOW if allowed else Decision.NO_OPINION), text


def _length(access: Access) -> int:
    return sum(len(part) for part in access[1:9] if isinstance(part, str))


def spec_of(access: Access) -> Obj:
    """Return the specification of the SubjectAccessReview, without empty fields."""
    user = access.user
    spec: Obj = {}
    if access.path is None:
        named = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
        attributes: Obj = {name: value for name in named if (value := getattr(access, name))}
        for name, requirements, operators in (
            ("fieldSelector", access.fields, _FIELD_OPERATORS),
            ("labelSelector", access.labels, _LABEL_OPERATORS),
        ):
            shown = [_requirement(one, operators) for one in requirements if one.operator in operators]
            if shown:
                attributes[name] = {"requirements": shown}
        spec["resourceAttributes"] = attributes
    else:
        spec["nonResourceAttributes"] = {"path": access.path, "verb": access.verb}
    for name, value in (
        ("user", user.name),
        ("groups", list(user.groups)),
        ("extra", {key: list(user.extra[key]) for key in sorted(user.extra)}),
        ("uid", user.uid),
    ):
        if value:
            spec[name] = value
    return spec


def _requirement(one: Requirement, operators: dict[str, str]) -> Obj:
    shown: Obj = {"key": one.key, "operator": operators[one.operator]}
    return shown | {"values": list(one.values)} if one.values else shown


_CONFIGURATION = document(
    "v1.AuthorizationConfiguration",
    authorizers=many(
        struct(
            "v1.AuthorizerConfiguration",
            type=TEXT,
            name=TEXT,
            webhook=Explicit(
                struct(
                    "v1.WebhookConfiguration",
                    authorizedTTL=DURATION,
                    cacheAuthorizedRequests=Explicit(SWITCH),
                    unauthorizedTTL=DURATION,
                    cacheUnauthorizedRequests=Explicit(SWITCH),
                    timeout=DURATION,
                    subjectAccessReviewVersion=TEXT,
                    matchConditionSubjectAccessReviewVersion=TEXT,
                    failurePolicy=TEXT,
                    connectionInfo=struct("v1.WebhookConnectionInfo", type=TEXT, kubeConfigFile=Explicit(TEXT)),
                    matchConditions=many(struct("v1.WebhookMatchCondition", expression=TEXT)),
                )
            ),
        )
    ),
)
_KINDS = {
    (f"apiserver.config.k8s.io/{version}", "AuthorizationConfiguration"): _CONFIGURATION
    for version in ("v1", "v1beta1", "v1alpha1")
}


def nanoseconds(text: str | None) -> int:
    return parse_duration(text) if text else 0


def read_authorization(data: bytes, needed: Sequence[str] = ()) -> list[Obj]:
    """Return the authorizers with defaults. `needed` are the types that must be among them, as at the start of the
    server. Raises FileProblem."""
    try:
        authorizers: list[Obj] = read_config(data, _KINDS).get("authorizers") or [] if data else []
    except FileProblem as problem:
        raise FileProblem(f"failed to load AuthorizationConfiguration from file: {problem}") from None
    for authorizer in authorizers:
        if authorizer.get("webhook") is not None:
            _default(authorizer["webhook"])
    errs = _check(authorizers)
    if errs:
        raise FileProblem(aggregate_message(errs))
    problems = [
        f"expected name {one['type'].lower()} for authorizer {one['type']} instead of {one['name']}"
        for one in authorizers
        if one["type"] != "Webhook" and one["name"] != one["type"].lower()
    ]
    missing = sorted(set(needed) - {one["type"] for one in authorizers})
    if missing:
        problems.append(f"missing required types: [{' '.join(missing)}]")
    if problems:
        raise FileProblem(aggregate(problems))
    return authorizers


def _default(webhook: Obj) -> None:
    for name, ttl in (("authorizedTTL", "5m0s"), ("unauthorizedTTL", "30s")):
        if nanoseconds(webhook.get(name)) == 0:
            webhook[name] = ttl
    webhook.setdefault("cacheAuthorizedRequests", True)
    webhook.setdefault("cacheUnauthorizedRequests", True)


def _check(authorizers: list[Obj]) -> Errors:
    errs: Errors = []
    if not authorizers:
        errs.append(required("authorizers", "at least one authorization mode must be defined"))
    types: set[str] = set()
    names: set[str] = set()
    for at, authorizer in enumerate(authorizers):
        path, type_, name = f"authorizers[{at}]", authorizer.get("type", ""), authorizer.get("name", "")
        if not type_:
            errs.append(required(f"{path}.type"))
            continue
        if type_ not in _MODES:
            errs.append(not_supported(f"{path}.type", type_, _MODES))
            continue
        if type_ in types and type_ != "Webhook":
            errs.append(duplicate(f"{path}.type", type_))
            continue
        types.add(type_)
        _check_name(name, names, f"{path}.name", errs)
        names.add(name)
        webhook = authorizer.get("webhook")
        if type_ != "Webhook":
            if webhook is not None:
                errs.append(invalid(f"{path}.webhook", "non-null", "may only be specified when type=Webhook"))
        elif webhook is None:
            errs.append(required(f"{path}.webhook", "required when type=Webhook"))
        else:
            _check_webhook(webhook, path, errs)
    return errs


def _check_name(name: str, names: set[str], path: str, errs: Errors) -> None:
    if not name:
        errs.append(required(path))
    elif name in names:
        errs.append(duplicate(path, name))
    elif dns1123_subdomain(name):
        errs.append(invalid(path, name, f"authorizer name is invalid: {', '.join(dns1123_subdomain(name))}"))


def _check_webhook(webhook: Obj, path: str, errs: Errors) -> None:
    _check_time(webhook, "timeout", path, "must be > 0s and <= 30s", lambda t: 0 < t <= _MAX_TIMEOUT, errs)
    for name in ("authorizedTTL", "unauthorizedTTL"):
        _check_time(webhook, name, path, "must be > 0s", lambda t: t > 0, errs)
    _check_choice(webhook, "subjectAccessReviewVersion", ("v1", "v1beta1"), path, errs)
    conditions = webhook.get("matchConditions") or []
    where, version = (
        "matchConditionSubjectAccessReviewVersion",
        webhook.get("matchConditionSubjectAccessReviewVersion", ""),
    )
    if not version and conditions:
        errs.append(required(f"{path}.{where}", "required if match conditions are specified"))
    elif version not in ("", "v1"):
        errs.append(not_supported(f"{path}.{where}", version, ("v1",)))
    _check_choice(webhook, "failurePolicy", ("NoOpinion", "Deny"), path, errs)
    _check_connection(webhook.get("connectionInfo") or {}, f"{path}.connectionInfo", errs)
    _check_conditions(conditions, f"{path}.matchConditions", errs)


def _check_time(webhook: Obj, name: str, path: str, rule: str, fits: Callable[[int], bool], errs: Errors) -> None:
    found = nanoseconds(webhook.get(name))
    if found == 0:
        errs.append(required(f"{path}.{name}"))
    elif not fits(found):
        errs.append(invalid(f"{path}.{name}", format_duration(found), rule))


def _check_choice(webhook: Obj, name: str, choices: tuple[str, ...], path: str, errs: Errors) -> None:
    value = webhook.get(name, "")
    if not value:
        errs.append(required(f"{path}.{name}"))
    elif value not in choices:
        errs.append(not_supported(f"{path}.{name}", value, choices))


def _check_connection(info: Obj, path: str, errs: Errors) -> None:
    kind, file = info.get("type", ""), info.get("kubeConfigFile")
    where = f"{path}.kubeConfigFile"
    if not kind:
        errs.append(required(f"{path}.type"))
    elif kind == "InClusterConfig":
        if file is not None:
            errs.append(invalid(where, file, "can only be set when type=KubeConfigFile"))
        else:
            # The webhook would be this server itself; upstream refuses that too, at its start.
            errs.append(
                invalid(f"{path}.type", kind, "this server is the API server of the cluster; name a kubeconfig instead")
            )
    elif kind == "KubeConfigFile":
        if not file:
            errs.append(required(where))
        elif not Path(file).is_absolute():
            errs.append(invalid(where, file, "must be an absolute path"))
        elif not Path(file).exists():
            errs.append(invalid(where, file, f"error loading file: stat {file}: no such file or directory"))
        elif not Path(file).is_file():
            errs.append(invalid(where, file, "must be a regular file"))
    else:
        errs.append(not_supported(f"{path}.type", kind, ("InClusterConfig", "KubeConfigFile")))


def _check_conditions(conditions: list[Obj], path: str, errs: Errors) -> None:
    if len(conditions) > _MAX_MATCH_CONDITIONS:
        errs.append(too_many(path, len(conditions), _MAX_MATCH_CONDITIONS))
        return
    seen: set[str] = set()
    for at, condition in enumerate(conditions):
        where, text = f"{path}[{at}].expression", condition.get("expression", "")
        if not text.strip():
            errs.append(required(where))
        elif text in seen:
            errs.append(duplicate(where, text))
        else:
            seen.add(text)
            try:
                compile_condition(text)
            except InvalidCondition as problem:
                wrong = str(problem).startswith("program instantiation failed")
                errs.append(internal(where, str(problem)) if wrong else invalid(where, text, str(problem)))
