"""Authorization: the interface of authorizers, and the chain that asks each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple, Protocol, Self

from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Forbidden
from setpoint.meta.goformat import aggregate, quote
from setpoint.meta.names import path_segment
from setpoint.meta.selectors import Requirement, Selector, SelectorError, parse_fields, parse_labels

MASTERS = "system:masters"
Rule = Mapping[str, Any]
MAX_SELECTOR_LENGTH = 8 * 1024
"""Maximum length of a selector that authorization considers. A longer one counts as no restriction: parsing it would
cost too much for a client that is not authorized yet."""
_ALL: tuple[Rule, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
_WITH_SELECTORS = frozenset({"list", "watch", "deletecollection"})
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Access(NamedTuple):
    """The attributes of a request to authorize: those of a resource, or with `path` those of a non-resource URL."""

    user: UserInfo
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str | None = None
    fields: Iterable[Requirement] = ()
    """Requirements of the field selector of a list, watch or deletecollection, if it could be parsed."""
    labels: Iterable[Requirement] = ()
    """Requirements of the label selector."""


class Restriction:
    """The requirements of a selector, parsed only if an authorizer needs them.

    A selector that cannot be parsed has no requirements: the request counts as one for all objects.
    """

    __slots__ = ("_found", "_parse", "_text")

    def __init__(self, text: str, parse: Callable[[str], Selector]) -> None:
        self._text = text
        self._parse = parse
        self._found: tuple[Requirement, ...] | None = None

    def __iter__(self) -> Iterator[Requirement]:
        return iter(self._requirements)

    @property
    def _requirements(self) -> tuple[Requirement, ...]:
        if self._found is None:
            self._found = ()
            if len(self._text) <= MAX_SELECTOR_LENGTH:
                with suppress(SelectorError):
                    self._found = self._parse(self._text).requirements
        return self._found

    @property
    def name(self) -> str:
        """The only object that a field selector admits, or "": a user who may read it may also list it."""
        if "metadata.name" not in self._text:
            return ""
        for requirement in self._requirements:
            if requirement.key == "metadata.name" and requirement.operator == "=":
                name = requirement.values[0]
                return "" if path_segment(name) else name
        return ""


class Decision(Enum):
    ALLOW = "allow"
    DENY = "deny"
    NO_OPINION = "no opinion"


class Problem(str):
    """The reason of a decision that could not be made because of an error. A request that is refused only for this
    reason is answered with a server error."""

    reason: str
    """The reasons of the authorizers that could decide."""

    def __new__(cls, text: str, reason: str = "") -> Self:
        problem = super().__new__(cls, text)
        problem.reason = reason
        return problem


Ruling = tuple[Decision, str]
"""A decision and its reason, which may be empty."""


class Rules(NamedTuple):
    """The rules of a user, as far as they can be listed."""

    rules: list[Rule]
    errors: list[str]
    """Errors of the listing, such as a role that does not exist; empty if it is complete."""
    incomplete: bool = False
    """Whether the user may have further rights."""


class Authorizer(Protocol):
    """Decides whether requests are allowed."""

    name: str
    """Prefix of its reasons in the response to a request that no authorizer allowed."""

    def authorize(self, access: Access) -> Ruling | Awaitable[Ruling]:
        """Return the decision, or an awaitable if a remote server must be asked."""
        ...

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        """Return all rules of the user in a namespace."""
        ...


class AlwaysAllow:
    name = "alwaysallow"

    def authorize(self, access: Access) -> Ruling:
        return Decision.ALLOW, ""

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        return Rules(list(_ALL), [])


class AlwaysDeny:
    name = "alwaysdeny"

    def authorize(self, access: Access) -> Ruling:
        return Decision.NO_OPINION, "Everything is forbidden."

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        return Rules([], [])


class AuthorizerChain:
    """Asks the authorizers in order; the first that allows or denies decides. `system:masters` are always allowed."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def authorize(self, access: Access) -> Ruling | Awaitable[Ruling]:
        """Return the decision, or an awaitable if a remote server must be asked."""
        if MASTERS in access.user.groups:
            return Decision.ALLOW, ""
        return _ask(self._authorizers, access, ())

    def replace(self, authorizers: Sequence[Authorizer]) -> None:
        """Replace the authorizers for the following requests."""
        self._authorizers = tuple(authorizers)

    async def decide(self, access: Access) -> Ruling:
        """Return the decision, after waiting for remote servers."""
        ruling = self.authorize(access)
        return ruling if isinstance(ruling, tuple) else await ruling

    async def allows(self, access: Access) -> bool:
        return (await self.decide(access))[0] is Decision.ALLOW

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        found = [authorizer.rules_for(user, namespace) for authorizer in self._authorizers]
        return Rules(
            [rule for each in found for rule in each.rules],
            [error for each in found for error in each.errors],
            any(each.incomplete for each in found),
        )


_Reasons = tuple[tuple[str, str], ...]
"""Names of authorizers and their reasons."""


def _ask(authorizers: tuple[Authorizer, ...], access: Access, reasons: _Reasons) -> Ruling | Awaitable[Ruling]:
    """Ask one authorizer after the other; `reasons` are those of earlier ones."""
    for authorizer in authorizers:
        ruling = authorizer.authorize(access)
        if not isinstance(ruling, tuple):
            return _await(ruling, authorizers[authorizers.index(authorizer) :], access, reasons)
        if ruling[0] is not Decision.NO_OPINION:
            return ruling
        if ruling[1]:
            reasons = (*reasons, (authorizer.name, ruling[1]))
    return Decision.NO_OPINION, _joined(reasons) if reasons else ""


def _joined(reasons: _Reasons) -> str:
    texts = "\n".join(f"{name}: {text}" for name, text in reasons if not isinstance(text, Problem))
    problems = [text for _, text in reasons if isinstance(text, Problem)]
    return Problem(aggregate(problems), texts) if problems else texts


async def _await(
    pending: Awaitable[Ruling], authorizers: tuple[Authorizer, ...], access: Access, reasons: _Reasons
) -> Ruling:
    """Await the first of `authorizers`, which has been asked, and continue with the others."""
    decision, reason = await pending
    if decision is not Decision.NO_OPINION:
        return decision, reason
    if reason:
        reasons = (*reasons, (authorizers[0].name, reason))
    ruling = _ask(authorizers[1:], access, reasons)
    return ruling if isinstance(ruling, tuple) else await ruling


def access_of(ctx: RequestContext) -> Access:
    target, query = ctx.target, ctx.query
    if not target.resource:
        return Access(ctx.user, ctx.request.method.lower(), path=target.path)
    name = target.name
    fields: Iterable[Requirement] = ()
    labels: Iterable[Requirement] = ()
    # The deprecated watch paths do not support selectors everywhere, so these restrict nothing.
    if query and ctx.verb in _WITH_SELECTORS and not target.watch:
        if "fieldSelector" in query:
            fields = Restriction(ctx.option("fieldSelector"), parse_fields)
            if not name and ctx.verb != "deletecollection":
                name = fields.name
        if "labelSelector" in query:
            labels = Restriction(ctx.option("labelSelector"), parse_labels)
    return Access(
        ctx.user,
        ctx.verb,
        target.group,
        target.version,
        target.resource,
        target.subresource,
        target.namespace,
        name,
        None,
        fields,
        labels,
    )


def escape_html(text: str) -> str:
    """Escape text from the request for HTML."""
    return text.translate(_HTML)


def forbidden(access: Access, reason: str = "") -> Forbidden:
    """Return the error in upstream's words; the object is not named if the whole kind is concerned."""
    user = f"User {quote(access.user.name)} cannot {access.verb}"
    if access.path is not None:
        text = f"{user} path {quote(access.path)}"
    else:
        resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
        text = f"{user} resource {quote(resource)} in API group {quote(access.group)}"
        text += f" in the namespace {quote(access.namespace)}" if access.namespace else " at the cluster scope"
    text = escape_html(text)
    return Forbidden.of(access.group, access.resource, access.name, f"{text}: {reason}" if reason else text)
