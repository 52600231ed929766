"""Authorization checks: `authorizer.group('apps').resource('deployments').check('create').allowed()`.

The caller provides the decision: it binds an `AuthorizerValue` with a function from a `Check` to a `Decision`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from setpoint.meta import names
from setpoint.meta.cel import types as t
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.values import CelError, Opaque


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of the authorizer. `error` is set if it could not decide."""

    allowed: bool
    reason: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """The access that is checked. `service_account` is (namespace, name) if it is not the user of the request."""

    verb: str = ""
    path: str = ""
    is_resource: bool = False
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    service_account: tuple[str, str] | None = None


Authorize = Callable[[Check], Decision]
_A = "kubernetes.authorization"


class _Value(Opaque):
    __slots__ = ("authorize", "check")

    def __init__(self, authorize: Authorize, check: Check) -> None:
        self.authorize = authorize
        self.check = check

    def equals(self, other: Any) -> bool:
        return isinstance(other, _Value) and type(other) is type(self) and self.check == other.check


class AuthorizerValue(_Value):
    """The value of the variable `authorizer`."""

    __slots__ = ()
    TYPE = t.struct(f"{_A}.Authorizer")

    def __init__(self, authorize: Authorize, check: Check | None = None) -> None:
        super().__init__(authorize, check or Check())


class PathCheckValue(_Value):
    __slots__ = ()
    TYPE = t.struct(f"{_A}.PathCheck")


class GroupCheckValue(_Value):
    __slots__ = ()
    TYPE = t.struct(f"{_A}.GroupCheck")


class ResourceCheckValue(_Value):
    """A check of a resource; the one of the request is bound to `authorizer.requestResource`."""

    __slots__ = ()
    TYPE = t.struct(f"{_A}.ResourceCheck")


class DecisionValue(Opaque):
    __slots__ = ("decision",)
    TYPE = t.struct(f"{_A}.Decision")

    def __init__(self, decision: Decision) -> None:
        self.decision = decision

    def equals(self, other: Any) -> bool:
        return isinstance(other, DecisionValue) and self.decision == other.decision


def _path(value: AuthorizerValue, path: str) -> PathCheckValue:
    if not path.strip():
        raise CelError("path must not be empty")
    return PathCheckValue(value.authorize, replace(value.check, path=path))


def _group(value: AuthorizerValue, group: str) -> GroupCheckValue:
    return GroupCheckValue(value.authorize, replace(value.check, group=group))


def _service_account(value: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    if names.dns1123_subdomain(name):
        raise CelError("Invalid service account name")
    if names.dns1123_label(namespace):
        raise CelError("Invalid service account namespace")
    return AuthorizerValue(value.authorize, replace(value.check, service_account=(namespace, name)))


def _resource(value: GroupCheckValue, resource: str) -> ResourceCheckValue:
    if not resource.strip():
        raise CelError("resource must not be empty")
    return ResourceCheckValue(value.authorize, replace(value.check, resource=resource, is_resource=True))


def _with(name: str) -> Callable[[ResourceCheckValue, str], ResourceCheckValue]:
    def narrowed(value: ResourceCheckValue, text: str) -> ResourceCheckValue:
        changes: dict[str, Any] = {name: text}
        return ResourceCheckValue(value.authorize, replace(value.check, **changes))

    return narrowed


def _check(value: _Value, verb: str) -> DecisionValue:
    return DecisionValue(value.authorize(replace(value.check, verb=verb)))


AUTHZ = Library(
    "kubernetes.authz",
    (
        ("authorizer_path", f"{_A}.Authorizer::path(string) -> {_A}.PathCheck", _path),
        ("authorizer_group", f"{_A}.Authorizer::group(string) -> {_A}.GroupCheck", _group),
        (
            "authorizer_serviceaccount",
            f"{_A}.Authorizer::serviceAccount(string, string) -> {_A}.Authorizer",
            _service_account,
        ),
        ("groupcheck_resource", f"{_A}.GroupCheck::resource(string) -> {_A}.ResourceCheck", _resource),
        *(
            (f"resourcecheck_{name}", f"{_A}.ResourceCheck::{name}(string) -> {_A}.ResourceCheck", _with(name))
            for name in ("subresource", "namespace", "name")
        ),
        ("pathcheck_check", f"{_A}.PathCheck::check(string) -> {_A}.Decision", _check),
        ("resourcecheck_check", f"{_A}.ResourceCheck::check(string) -> {_A}.Decision", _check),
        ("decision_errored", f"{_A}.Decision::errored() -> bool", lambda value: value.decision.error is not None),
        ("decision_error", f"{_A}.Decision::error() -> string", lambda value: value.decision.error or ""),
        ("decision_allowed", f"{_A}.Decision::allowed() -> bool", lambda value: value.decision.allowed),
        ("decision_reason", f"{_A}.Decision::reason() -> string", lambda value: value.decision.reason),
    ),
)
AUTHZ_SELECTORS = Library(
    "kubernetes.authzSelectors",
    (
        (
            "authorizer_fieldselector",
            f"{_A}.ResourceCheck::fieldSelector(string) -> {_A}.ResourceCheck",
            _with("field_selector"),
        ),
        (
            "authorizer_labelselector",
            f"{_A}.ResourceCheck::labelSelector(string) -> {_A}.ResourceCheck",
            _with("label_selector"),
        ),
    ),
)
