"""AuthorizationConfiguration: the file that says which authorizers there are, and in which order they are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from setpoint.apiserver.authorization.match_conditions import ConditionProblem, compile_condition
from setpoint.apiserver.config_files import (
    DURATION,
    SWITCH,
    TEXT,
    FileProblem,
    Given,
    document,
    many,
    read_config,
    struct,
)
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
from setpoint.meta.times import format_duration, parse_duration

Obj = dict[str, Any]
MODES = ("ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook")
_MOST_CONDITIONS = 64
_LONGEST_TIMEOUT = 30_000_000_000
_CONFIGURATION = document(
    "v1.AuthorizationConfiguration",
    authorizers=many(
        struct(
            "v1.AuthorizerConfiguration",
            type=TEXT,
            name=TEXT,
            webhook=Given(
                struct(
                    "v1.WebhookConfiguration",
                    authorizedTTL=DURATION,
                    cacheAuthorizedRequests=Given(SWITCH),
                    unauthorizedTTL=DURATION,
                    cacheUnauthorizedRequests=Given(SWITCH),
                    timeout=DURATION,
                    subjectAccessReviewVersion=TEXT,
                    matchConditionSubjectAccessReviewVersion=TEXT,
                    failurePolicy=TEXT,
                    connectionInfo=struct("v1.WebhookConnectionInfo", type=TEXT, kubeConfigFile=Given(TEXT)),
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
    """The authorizers, with defaults. `needed`: those types that must be among them, as they were at the start.
    Raises FileProblem."""
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
        if type_ not in MODES:
            errs.append(not_supported(f"{path}.type", type_, MODES))
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
    _check_time(webhook, "timeout", path, "must be > 0s and <= 30s", lambda t: 0 < t <= _LONGEST_TIMEOUT, errs)
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
            # It would be the server itself: upstream refuses it, too, when it puts itself together.
            errs.append(invalid(f"{path}.type", kind, "this server is the cluster's own: name a kubeconfig"))
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
    if len(conditions) > _MOST_CONDITIONS:
        errs.append(too_many(path, len(conditions), _MOST_CONDITIONS))
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
            except ConditionProblem as problem:
                wrong = str(problem).startswith("program instantiation failed")
                errs.append(internal(where, str(problem)) if wrong else invalid(where, text, str(problem)))
