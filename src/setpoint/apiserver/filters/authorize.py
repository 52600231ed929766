"""May they? The seam for authorization modes and the chain that asks each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, Self

from setpoint.apiserver.call import Call
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Forbidden
from setpoint.meta.goformat import aggregate, quote
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


class Problem(str):
    """In the place of a reason: that it could not be decided, and why. Whoever is not allowed for this alone is told of
    an error of the server."""

    reason: str
    """What those said who could decide."""

    def __new__(cls, text: str, reason: str = "") -> Self:
        problem = super().__new__(cls, text)
        problem.reason = reason
        return problem


Ruling = tuple[Decision, str]
"""The decision and, if there is something to say, why."""


class Authorizer(Protocol):
    name: str
    """What its reasons are introduced with when nobody allowed a request."""

    def authorize(self, access: Access) -> Ruling | Awaitable[Ruling]:
        """At once, if it can be said at once; else it is to be awaited."""
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

    def authorize(self, access: Access) -> Ruling:
        return Decision.ALLOW, ""

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[Rule], list[str]]:
        return list(_ALL), []


class AlwaysDeny:
    name = "alwaysdeny"

    def authorize(self, access: Access) -> Ruling:
        return Decision.NO_OPINION, "Everything is forbidden."

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[Rule], list[str]]:
        return [], []


class AuthorizerChain:
    """The first that allows or denies decides; `system:masters` may do everything, before anybody is asked."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def authorize(self, access: Access) -> Ruling | Awaitable[Ruling]:
        """To be awaited only where an authorizer must ask somebody else first."""
        if MASTERS in access.user.groups:
            return Decision.ALLOW, ""
        return _ask(self._authorizers, 0, access, [])

    async def decide(self, access: Access) -> Ruling:
        """For those who do not mind to wait."""
        ruling = self.authorize(access)
        return ruling if isinstance(ruling, tuple) else await ruling

    async def allows(self, access: Access) -> bool:
        return (await self.decide(access))[0] is Decision.ALLOW

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[Rule], list[str]]:
        rules: list[Rule] = []
        errors: list[str] = []
        for authorizer in self._authorizers:
            found, missed = authorizer.rules_for(user, namespace)
            rules += found
            errors += missed
        return rules, errors


_Said = list[tuple[str, str]]
"""By whom, and what."""


def _ask(authorizers: tuple[Authorizer, ...], index: int, access: Access, said: _Said) -> Ruling | Awaitable[Ruling]:
    """All from `index` on; `said` is what those before gave as reasons."""
    for at in range(index, len(authorizers)):
        ruling = authorizers[at].authorize(access)
        if not isinstance(ruling, tuple):
            return _await(ruling, authorizers, at, access, said)
        if ruling[0] is not Decision.NO_OPINION:
            return ruling
        if ruling[1]:
            said.append((authorizers[at].name, ruling[1]))
    return Decision.NO_OPINION, _together(said) if said else ""


def _together(said: _Said) -> str:
    reasons = "\n".join(f"{name}: {text}" for name, text in said if not isinstance(text, Problem))
    problems = [text for _, text in said if isinstance(text, Problem)]
    return Problem(aggregate(problems), reasons) if problems else reasons


async def _await(
    asked: Awaitable[Ruling], authorizers: tuple[Authorizer, ...], index: int, access: Access, said: _Said
) -> Ruling:
    decision, reason = await asked
    if decision is not Decision.NO_OPINION:
        return decision, reason
    if reason:
        said.append((authorizers[index].name, reason))
    ruling = _ask(authorizers, index + 1, access, said)
    return ruling if isinstance(ruling, tuple) else await ruling


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


_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def harmless(text: str) -> str:
    """What comes from the request is kept fit for HTML."""
    return text.translate(_HTML)


def forbidden(access: Access, reason: str = "") -> Forbidden:
    """In upstream's words; the name of the object is left out where the whole kind is at stake."""
    user = f"User {quote(access.user.name)} cannot {access.verb}"
    if access.path is not None:
        text = f"{user} path {quote(access.path)}"
    else:
        resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
        text = f"{user} resource {quote(resource)} in API group {quote(access.group)}"
        text += f" in the namespace {quote(access.namespace)}" if access.namespace else " at the cluster scope"
    text = harmless(text)
    return Forbidden.of(access.group, access.resource, access.name, f"{text}: {reason}" if reason else text)
