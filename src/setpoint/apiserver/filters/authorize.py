"""May they? The seam for authorization modes and the chain that asks each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from setpoint.apiserver.call import Call
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Access:
    """What is asked for. `resource` is empty for paths outside the API, which have `path` instead."""

    user: UserInfo
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(Enum):
    ALLOW = "allow"
    DENY = "deny"
    NO_OPINION = "no opinion"


class Authorizer(Protocol):
    def authorize(self, access: Access) -> tuple[Decision, str]:
        """The decision and, if there is something to say, why."""
        ...


class AlwaysAllow:
    def authorize(self, access: Access) -> tuple[Decision, str]:
        return Decision.ALLOW, ""


class AlwaysDeny:
    def authorize(self, access: Access) -> tuple[Decision, str]:
        return Decision.NO_OPINION, "Everything is forbidden."


class AuthorizerChain:
    """The first that allows or denies decides; `system:masters` may do everything, before anybody is asked."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def authorize(self, access: Access) -> tuple[Decision, str]:
        if "system:masters" in access.user.groups:
            return Decision.ALLOW, ""
        reasons = []
        for authorizer in self._authorizers:
            decision, reason = authorizer.authorize(access)
            if decision is not Decision.NO_OPINION:
                return decision, reason
            if reason:
                reasons.append(reason)
        return Decision.NO_OPINION, "\n".join(reasons)


def access_of(call: Call) -> Access:
    target = call.target
    if not target.resource:
        verb = {"GET": "get", "HEAD": "head", "POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}.get(
            call.request.method, call.request.method.lower()
        )
        return Access(call.user, verb, path=target.path)
    return Access(
        call.user,
        call.verb,
        target.group,
        target.version,
        target.resource,
        target.subresource,
        target.namespace,
        target.name,
        target.path,
    )


def forbidden(access: Access, reason: str) -> Forbidden:
    """In upstream's words; the name of the object is left out where the whole kind is at stake."""
    user = f'User "{access.user.name}" cannot'
    if not access.resource:
        text = f'{user} {access.verb} path "{access.path}"'
        return Forbidden.of("", "", "", text + (f": {reason}" if reason else ""))
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    text = f'{user} {access.verb} resource "{resource}" in API group "{access.group}"'
    text += f' in the namespace "{access.namespace}"' if access.namespace else " at the cluster scope"
    return Forbidden.of(access.group, access.resource, access.name, text + (f": {reason}" if reason else ""))
