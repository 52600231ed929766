"""May they? The seam for authorization modes and the chain that asks each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple, Protocol, Self

from setpoint.apiserver.call import Call
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Forbidden
from setpoint.meta.goformat import aggregate, quote
from setpoint.meta.names import path_segment
from setpoint.meta.selectors import Requirement, Selector, SelectorError, parse_fields, parse_labels

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
    fields: Iterable[Requirement] = ()
    """What a list, watch or deletecollection is restricted to, as far as it could be parsed."""
    labels: Iterable[Requirement] = ()


LONGEST_SELECTOR = 8 * 1024
"""Characters of a selector that authorization takes into account. A longer one restricts nothing there: parsing it
would cost more than may be spent on a client that nobody has allowed anything yet."""


class Restriction:
    """The requirements of a selector, parsed when an authorizer asks for them: most never do.

    One that cannot be parsed has none, so the request counts as one for everything."""

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
            if len(self._text) <= LONGEST_SELECTOR:
                with suppress(SelectorError):
                    self._found = self._parse(self._text).requirements
        return self._found

    @property
    def name(self) -> str:
        """The only object that a field selector admits, or "": who may read that object may list it."""
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


class Rules(NamedTuple):
    """What somebody may do, as far as it can be said in rules."""

    rules: list[Rule]
    errors: list[str]
    """What could not be looked up."""
    incomplete: bool = False
    """There is more than the rules say."""


class Authorizer(Protocol):
    name: str
    """What its reasons are introduced with when nobody allowed a request."""

    def authorize(self, access: Access) -> Ruling | Awaitable[Ruling]:
        """At once, if it can be said at once; else it is to be awaited."""
        ...

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        """Every rule that holds for the user there."""
        ...


_ALL: tuple[Rule, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


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
    """The first that allows or denies decides; `system:masters` may do everything, before anybody is asked."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def authorize(self, access: Access) -> Ruling | Awaitable[Ruling]:
        """To be awaited only where an authorizer must ask somebody else first."""
        if MASTERS in access.user.groups:
            return Decision.ALLOW, ""
        return _ask(self._authorizers, access, ())

    def replace(self, authorizers: Sequence[Authorizer]) -> None:
        """Others, from the next question on."""
        self._authorizers = tuple(authorizers)

    async def decide(self, access: Access) -> Ruling:
        """For those who do not mind to wait."""
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


_Said = tuple[tuple[str, str], ...]
"""By whom, and what."""


def _ask(authorizers: tuple[Authorizer, ...], access: Access, said: _Said) -> Ruling | Awaitable[Ruling]:
    """One after the other; `said` is what others before gave as reasons."""
    for authorizer in authorizers:
        ruling = authorizer.authorize(access)
        if not isinstance(ruling, tuple):
            return _await(ruling, authorizers[authorizers.index(authorizer) :], access, said)
        if ruling[0] is not Decision.NO_OPINION:
            return ruling
        if ruling[1]:
            said = (*said, (authorizer.name, ruling[1]))
    return Decision.NO_OPINION, _together(said) if said else ""


def _together(said: _Said) -> str:
    reasons = "\n".join(f"{name}: {text}" for name, text in said if not isinstance(text, Problem))
    problems = [text for _, text in said if isinstance(text, Problem)]
    return Problem(aggregate(problems), reasons) if problems else reasons


async def _await(asked: Awaitable[Ruling], authorizers: tuple[Authorizer, ...], access: Access, said: _Said) -> Ruling:
    """The first of `authorizers` is being asked."""
    decision, reason = await asked
    if decision is not Decision.NO_OPINION:
        return decision, reason
    if reason:
        said = (*said, (authorizers[0].name, reason))
    ruling = _ask(authorizers[1:], access, said)
    return ruling if isinstance(ruling, tuple) else await ruling


_WITH_SELECTORS = frozenset({"list", "watch", "deletecollection"})


def access_of(call: Call) -> Access:
    target, query = call.target, call.query
    if not target.resource:
        return Access(call.user, call.request.method.lower(), path=target.path)
    name = target.name
    fields: Iterable[Requirement] = ()
    labels: Iterable[Requirement] = ()
    # The old way to watch, by a path of its own, does not take selectors everywhere: there they confine nothing.
    if query and call.verb in _WITH_SELECTORS and not target.watch:
        if "fieldSelector" in query:
            fields = Restriction(call.option("fieldSelector"), parse_fields)
            if not name and call.verb != "deletecollection":
                name = fields.name
        if "labelSelector" in query:
            labels = Restriction(call.option("labelSelector"), parse_labels)
    return Access(
        call.user, call.verb, target.group, target.version, target.resource, target.subresource, target.namespace,
        name, None, fields, labels,
    )  # fmt: skip


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
