"""May they? The seam for authorization modes and the chain that asks each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from setpoint.apiserver.call import Call
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Forbidden
from setpoint.meta.goformat import quote
from setpoint.meta.names import path_segment
from setpoint.meta.selectors import SelectorError, parse_fields

MASTERS = "system:masters"
Rule = Mapping[str, Any]


class Access(NamedTuple):
    """What is asked for: something with a resource, or, with a `path`, something outside the API."""

    user: UserInfo
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str | None = None


class Decision(Enum):
    ALLOW = "allow"
    DENY = "deny"
    NO_OPINION = "no opinion"


class Authorizer(Protocol):
    name: str
    """What its reasons are introduced with when nobody allowed a request."""

    def authorize(self, access: Access) -> tuple[Decision, str]:
        """The decision and, if there is something to say, why."""
        ...

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[Rule], list[str]]:
        """Every rule that holds for the user there, and what could not be looked up."""
        ...


_ALL: tuple[Rule, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


class AlwaysAllow:
    name = "alwaysallow"

    def authorize(self, access: Access) -> tuple[Decision, str]:
        return Decision.ALLOW, ""

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[Rule], list[str]]:
        return list(_ALL), []


class AlwaysDeny:
    name = "alwaysdeny"

    def authorize(self, access: Access) -> tuple[Decision, str]:
        return Decision.NO_OPINION, "Everything is forbidden."

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[Rule], list[str]]:
        return [], []


class AuthorizerChain:
    """The first that allows or denies decides; `system:masters` may do everything, before anybody is asked."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def authorize(self, access: Access) -> tuple[Decision, str]:
        if MASTERS in access.user.groups:
            return Decision.ALLOW, ""
        reasons = []
        for authorizer in self._authorizers:
            decision, reason = authorizer.authorize(access)
            if decision is not Decision.NO_OPINION:
                return decision, reason
            if reason:
                reasons.append(f"{authorizer.name}: {reason}")
        return Decision.NO_OPINION, "\n".join(reasons)

    def allows(self, access: Access) -> bool:
        return self.authorize(access)[0] is Decision.ALLOW

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[Rule], list[str]]:
        rules: list[Rule] = []
        errors: list[str] = []
        for authorizer in self._authorizers:
            found, missed = authorizer.rules_for(user, namespace)
            rules += found
            errors += missed
        return rules, errors


def access_of(call: Call) -> Access:
    target = call.target
    if not target.resource:
        return Access(call.user, call.request.method.lower(), path=target.path)
    name = target.name
    if not name and "fieldSelector" in call.query and call.verb in ("list", "watch"):
        name = _selected_name(call.option("fieldSelector"))
    return Access(
        call.user,
        call.verb,
        target.group,
        target.version,
        target.resource,
        target.subresource,
        target.namespace,
        name,
    )


def _selected_name(selector: str) -> str:
    """The one object that a list or watch is confined to: who may read that object may list it."""
    try:
        name = parse_fields(selector).exact("metadata.name") or ""
    except SelectorError:
        return ""
    return "" if path_segment(name) else name


# What comes from the request is kept fit for HTML.
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def forbidden(access: Access, reason: str = "") -> Forbidden:
    """In upstream's words; the name of the object is left out where the whole kind is at stake."""
    user = f"User {quote(access.user.name)} cannot {access.verb}"
    if access.path is not None:
        text = f"{user} path {quote(access.path)}"
    else:
        resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
        text = f"{user} resource {quote(resource)} in API group {quote(access.group)}"
        text += f" in the namespace {quote(access.namespace)}" if access.namespace else " at the cluster scope"
    text = text.translate(_HTML)
    return Forbidden.of(access.group, access.resource, access.name, f"{text}: {reason}" if reason else text)
