"""Impersonation: acting as another user by Impersonate-* headers.

Several modes are tried. The constrained ones check two permissions: to be that user (`impersonate:<mode>`), and to
perform this request as that user (`impersonate-on:<mode>:<verb>`). The legacy mode requires `impersonate` on every
attribute of the user. The client sees the first refusal, from the mode that last succeeded for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from setpoint.apiserver.filters.authenticate import AUTHENTICATED, UNAUTHENTICATED
from setpoint.apiserver.filters.authorize import MASTERS, Access, AuthorizerChain, Decision, access_of, forbidden
from setpoint.apiserver.request_context import RequestContext, percent_decoded
from setpoint.kinds.shared_names import validate_domain_prefixed_path
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import BadRequest, Forbidden
from setpoint.meta.field import Errors, aggregate_message
from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_label, dns1123_subdomain
from setpoint.wire.message import Request

_EXTRA = "impersonate-extra-"
_ACCOUNT = "system:serviceaccount:"
_NODE = "system:node:"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_IDENTITY = "authentication.k8s.io"
_WILDCARD_THRESHOLD = 4
"""Number of checks from which a single check for all of them is tried first."""
_MAX_CACHED_USERS = 10_000
_MAX_HEADER_BYTES = 64 * 1024
"""Maximum length of all Impersonate-* headers of a request together, including names; upstream has no limit."""


def service_account(name: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account with this user name, or None if it is none."""
    if not name.startswith(_ACCOUNT):
        return None
    parts = name[len(_ACCOUNT) :].split(":")
    if len(parts) != 2 or dns1123_label(parts[0]) or dns1123_subdomain(parts[1]):
        return None
    return parts[0], parts[1]


def _node(name: str) -> str:
    node = name.removeprefix(_NODE)
    return node if name.startswith(_NODE) and not dns1123_subdomain(node) else ""


class Impersonator:
    """Resolves and authorizes impersonation."""

    def __init__(self) -> None:
        self._modes: tuple[_Mode, ...] = (
            _Mode("associated-node", _is_own_node),
            _Mode("arbitrary-node", lambda wanted, _: _name_only(wanted) and bool(_node(wanted.name))),
            _Mode("serviceaccount", lambda wanted, _: _name_only(wanted) and service_account(wanted.name) is not None),
            _Mode("user-info", lambda wanted, _: not _node(wanted.name) and service_account(wanted.name) is None),
            _Mode("", lambda *_: True),
        )
        self._last_modes: OrderedDict[str, _Mode] = OrderedDict()
        """The mode that last succeeded, by user; bounded."""

    def user_for(
        self, ctx: RequestContext, user: UserInfo, authorizer: AuthorizerChain
    ) -> UserInfo | Awaitable[UserInfo]:
        """Return the user to act as: the client, or an awaitable of the impersonated user. Raises Forbidden,
        BadRequest."""
        wanted = _wanted(ctx.request)
        return user if wanted is None else self._checked(wanted, ctx, user, authorizer)

    async def _checked(
        self, wanted: UserInfo, ctx: RequestContext, user: UserInfo, authorizer: AuthorizerChain
    ) -> UserInfo:
        ctx.user = user
        access = access_of(ctx)
        refusal: Forbidden | None = None
        last = self._last_modes.get(user.name)
        for mode in self._modes if last is None else (last, *(mode for mode in self._modes if mode is not last)):
            if not mode.applies(wanted, user):
                continue
            try:
                found = await mode.check(wanted, access, authorizer)
            except Forbidden as error:
                refusal = refusal or error
                continue
            self._record_mode(user.name, mode)
            if ctx.audit is not None:
                ctx.audit.set_impersonation(found, mode.constraint)
            return found
        assert refusal is not None  # the last mode always applies
        raise refusal

    def _record_mode(self, name: str, mode: _Mode) -> None:
        self._last_modes[name] = mode
        self._last_modes.move_to_end(name)
        if len(self._last_modes) > _MAX_CACHED_USERS:
            self._last_modes.popitem(last=False)


def _wanted(request: Request) -> UserInfo | None:
    headers = request.headers
    names = [name for name in headers if name.startswith("impersonate-")]
    if not names:
        return None
    if sum(len(header) + sum(map(len, request.header_values(header))) for header in names) > _MAX_HEADER_BYTES:
        raise BadRequest(f"the Impersonate-* headers are longer than {_MAX_HEADER_BYTES} bytes")
    name, uid = (next(iter(request.header_values(f"impersonate-{part}")), "") for part in ("user", "uid"))
    groups = tuple(request.header_values("impersonate-group"))
    extra: dict[str, tuple[str, ...]] = {}
    for header in names:
        if header.startswith(_EXTRA):
            key = percent_decoded(header[len(_EXTRA) :])
            extra[key] = (*extra.get(key, ()), *request.header_values(header))
    if not name and (uid or groups or extra):
        shown = ", ".join(f"{quote(key)}:{_go_list(extra[key])}" for key in sorted(extra))
        shown = f"map[string][]string{{{shown}}}" if extra else "map[string][]string(nil)"
        raise BadRequest(
            f'requested &user.DefaultInfo{{Name:"", UID:{quote(uid)}, Groups:{_go_list(groups)}, Extra:{shown}}} '
            "without impersonating a user name"
        )
    if not name:
        return None
    # Later filters must not distinguish an impersonated request.
    request.headers = {key: value for key, value in headers.items() if key not in names}
    return UserInfo(name, uid, groups, extra)


def _go_list(values: Sequence[str]) -> str:
    return "[]string{" + ", ".join(map(quote, values)) + "}" if values else "[]string(nil)"


def _name_only(wanted: UserInfo) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


def _is_own_node(wanted: UserInfo, user: UserInfo) -> bool:
    """Return whether a service account wants to be the node that it runs on."""
    node = _node(wanted.name)
    if not node or not _name_only(wanted) or service_account(user.name) is None:
        return False
    return list(user.extra.get(_NODE_NAME, ())) == [node]


Require = Callable[[Access], Awaitable[None]]
"""Raises Forbidden if the access is not allowed."""


class _Mode:
    """A mode of impersonation; the legacy mode has no name."""

    def __init__(self, name: str, applies: Callable[[UserInfo, UserInfo], bool]) -> None:
        self.name = name
        self.applies = applies
        self._verb = f"impersonate:{name}" if name else "impersonate"
        self.constraint = self._verb if name else ""
        """The constraint in the audit log; empty for the legacy mode."""
        self._group, self._version = (_IDENTITY, "v1") if name else ("", "v1")

    async def check(self, wanted: UserInfo, access: Access, authorizer: AuthorizerChain) -> UserInfo:
        """Return the impersonated user. Raises Forbidden."""
        user = access.user
        if self.name == "associated-node":
            # An account may run on every node: its rights must not depend on the node.
            user = UserInfo(
                user.name,
                user.uid,
                user.groups,
                {"authentication.kubernetes.io/associated-node-keys": tuple(sorted(user.extra))},
            )

        async def require(requested: Access) -> None:
            decision, reason = await authorizer.decide(requested)
            if decision is not Decision.ALLOW:
                raise forbidden(requested, reason)

        if self.name:
            await require(access._replace(user=user, verb=f"impersonate-on:{self.name}:{access.verb}"))
        groups = await self._check_name(wanted, user, require)
        if wanted.uid:
            await require(Access(user, self._verb, _IDENTITY, "v1", "uids", name=wanted.uid))
        if wanted.groups:
            await self._check_groups(wanted.groups, user, require)
        if wanted.extra:
            await self._check_extra(wanted.extra, user, require)
        default_group = UNAUTHENTICATED if wanted.name == "system:anonymous" else AUTHENTICATED
        if default_group not in groups and UNAUTHENTICATED not in groups:
            groups = (*groups, default_group)
        return UserInfo(wanted.name, wanted.uid, groups, wanted.extra)

    async def _check_name(self, wanted: UserInfo, user: UserInfo, require: Require) -> tuple[str, ...]:
        """Check the user name and return the user's groups."""
        groups = wanted.groups
        resource, namespace, name = "users", "", wanted.name
        node, account = _node(wanted.name) if self.name else "", service_account(wanted.name)
        if node:
            resource, name = "nodes", "*" if self.name == "associated-node" else node
            groups = ("system:nodes",)
        elif account is not None:
            resource, (namespace, name) = "serviceaccounts", account
            groups = groups or ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        await require(Access(user, self._verb, self._group, self._version, resource, namespace=namespace, name=name))
        return groups

    async def _check_groups(self, groups: Sequence[str], user: UserInfo, require: Require) -> None:
        requested = Access(user, self._verb, self._group, self._version, "groups")
        if self.name:
            if "" in groups:
                raise forbidden(requested, "impersonating the empty string group is not allowed")
            if MASTERS in groups:
                raise forbidden(
                    requested._replace(name=MASTERS), "impersonating the system:masters group is not allowed"
                )
            if len(groups) >= _WILDCARD_THRESHOLD and await _is_allowed(require, requested._replace(name="*")):
                return
        for group in groups:
            await require(requested._replace(name=group))

    async def _check_extra(self, extra: Mapping[str, Sequence[str]], user: UserInfo, require: Require) -> None:
        requested = Access(user, self._verb, _IDENTITY, "v1", "userextras")
        if self.name:
            for key, values in extra.items():
                refusal = _bad_extra(key, values)
                if refusal:
                    raise forbidden(requested, refusal)
            many = len(extra) >= _WILDCARD_THRESHOLD or sum(map(len, extra.values())) >= _WILDCARD_THRESHOLD
            if many and await _is_allowed(require, requested._replace(subresource="*", name="*")):
                return
        for key, values in extra.items():
            for value in values:
                await require(requested._replace(subresource=key, name=value))


async def _is_allowed(require: Require, requested: Access) -> bool:
    try:
        await require(requested)
    except Forbidden:
        return False
    return True


def _bad_extra(key: str, values: Sequence[str]) -> str:
    if not key:
        return "impersonating the empty string key in extra is not allowed"
    errs: Errors = []
    validate_domain_prefixed_path(key, "extra.key", errs)
    if errs:
        return f"impersonating an invalid key in extra is not allowed: {aggregate_message(errs)}"
    if key != key.lower():
        return f"impersonating a non-lowercase key in extra is not allowed: {quote(key)}"
    if not values:
        return "impersonating empty values in extra is not allowed"
    return "impersonating the empty string value in extra is not allowed" if "" in values else ""
