"""Acting as somebody else, for those who may: the Impersonate-* headers.

Several modes are tried. The constrained ones ask two things: may the caller be that user (`impersonate:<mode>`), and
may it do this request while being it (`impersonate-on:<mode>:<verb>`)? The oldest one asks only for `impersonate` on
every part of the wanted user. The refusal that the caller sees is the first one, from the mode that last worked for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authenticate import AUTHENTICATED, UNAUTHENTICATED
from setpoint.apiserver.filters.authorize import MASTERS, Access, AuthorizerChain, Decision, access_of, forbidden
from setpoint.apiserver.http.message import Request
from setpoint.apiserver.request import percent_decoded
from setpoint.kinds.networking.references import validate_domain_prefixed_path
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import BadRequest, Forbidden
from setpoint.meta.field import Errors, aggregate_message
from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_label, dns1123_subdomain

_EXTRA = "impersonate-extra-"
_ACCOUNT = "system:serviceaccount:"
_NODE = "system:node:"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_IDENTITY = "authentication.k8s.io"
_MANY = 4
"""From so many checks on, one for all of them is tried first."""
_REMEMBERED = 10_000
_LONGEST = 64 * 1024
"""Characters of all Impersonate-* headers of a request together, names included. Upstream has no such bound."""


def service_account(name: str) -> tuple[str, str] | None:
    """Namespace and name of the service account whose user name this is."""
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
    def __init__(self) -> None:
        self._modes: tuple[_Mode, ...] = (
            _Mode("associated-node", _is_own_node),
            _Mode("arbitrary-node", lambda wanted, _: _name_only(wanted) and bool(_node(wanted.name))),
            _Mode("serviceaccount", lambda wanted, _: _name_only(wanted) and service_account(wanted.name) is not None),
            _Mode("user-info", lambda wanted, _: not _node(wanted.name) and service_account(wanted.name) is None),
            _Mode("", lambda *_: True),
        )
        self._last: OrderedDict[str, _Mode] = OrderedDict()
        """The mode that last worked, by user; bounded."""

    def user_for(self, call: Call, user: UserInfo, authorizer: AuthorizerChain) -> UserInfo | Awaitable[UserInfo]:
        """The user to act as: the caller, or (to be awaited) whom it impersonates. Raises Forbidden, BadRequest."""
        wanted = _wanted(call.request)
        return user if wanted is None else self._checked(wanted, call, user, authorizer)

    async def _checked(self, wanted: UserInfo, call: Call, user: UserInfo, authorizer: AuthorizerChain) -> UserInfo:
        call.user = user
        access = access_of(call)
        refusal: Forbidden | None = None
        last = self._last.get(user.name)
        for mode in self._modes if last is None else (last, *(mode for mode in self._modes if mode is not last)):
            if not mode.applies(wanted, user):
                continue
            try:
                found = await mode.check(wanted, access, authorizer)
            except Forbidden as error:
                refusal = refusal or error
                continue
            self._remember(user.name, mode)
            if call.audit is not None:
                call.audit.acts_as(found, mode.constraint)
            return found
        assert refusal is not None  # the last mode always applies
        raise refusal

    def _remember(self, name: str, mode: _Mode) -> None:
        self._last[name] = mode
        self._last.move_to_end(name)
        if len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)


def _wanted(request: Request) -> UserInfo | None:
    headers = request.headers
    names = [name for name in headers if name.startswith("impersonate-")]
    if not names:
        return None
    if sum(len(header) + sum(map(len, _values(request, header))) for header in names) > _LONGEST:
        raise BadRequest(f"the Impersonate-* headers are longer than {_LONGEST} bytes")
    name, uid = (next(iter(_values(request, f"impersonate-{part}")), "") for part in ("user", "uid"))
    groups = tuple(_values(request, "impersonate-group"))
    extra: dict[str, tuple[str, ...]] = {}
    for header in names:
        if header.startswith(_EXTRA):
            key = percent_decoded(header[len(_EXTRA) :])
            extra[key] = (*extra.get(key, ()), *_values(request, header))
    if not name and (uid or groups or extra):
        shown = ", ".join(f"{quote(key)}:{_go_list(extra[key])}" for key in sorted(extra))
        shown = f"map[string][]string{{{shown}}}" if extra else "map[string][]string(nil)"
        raise BadRequest(
            f'requested &user.DefaultInfo{{Name:"", UID:{quote(uid)}, Groups:{_go_list(groups)}, Extra:{shown}}} '
            "without impersonating a user name"
        )
    if not name:
        return None
    # Nobody further on shall tell an impersonated request from another.
    request.headers = {key: value for key, value in headers.items() if key not in names}
    return UserInfo(name, uid, groups, extra)


def _values(request: Request, header: str) -> Sequence[str]:
    if header in request.repeated:
        return request.repeated[header]
    return [request.headers[header]] if header in request.headers else []


def _go_list(values: Sequence[str]) -> str:
    return "[]string{" + ", ".join(map(quote, values)) + "}" if values else "[]string(nil)"


def _name_only(wanted: UserInfo) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


def _is_own_node(wanted: UserInfo, user: UserInfo) -> bool:
    """A service account on a node that wants to be that node."""
    node = _node(wanted.name)
    if not node or not _name_only(wanted) or service_account(user.name) is None:
        return False
    return list(user.extra.get(_NODE_NAME, ())) == [node]


Demand = Callable[[Access], Awaitable[None]]
"""Raises Forbidden."""


class _Mode:
    """One way to impersonate; without a name the oldest."""

    def __init__(self, name: str, applies: Callable[[UserInfo, UserInfo], bool]) -> None:
        self.name = name
        self.applies = applies
        self._verb = f"impersonate:{name}" if name else "impersonate"
        self.constraint = self._verb if name else ""
        """What the audit log says of it."""
        self._group, self._version = (_IDENTITY, "v1") if name else ("", "v1")

    async def check(self, wanted: UserInfo, access: Access, authorizer: AuthorizerChain) -> UserInfo:
        """Raises Forbidden."""
        user = access.user
        if self.name == "associated-node":
            # One and the same account may run on every node: what it may do must not depend on which.
            user = UserInfo(
                user.name,
                user.uid,
                user.groups,
                {"authentication.kubernetes.io/associated-node-keys": tuple(sorted(user.extra))},
            )

        async def demand(wish: Access) -> None:
            decision, reason = await authorizer.decide(wish)
            if decision is not Decision.ALLOW:
                raise forbidden(wish, reason)

        if self.name:
            await demand(access._replace(user=user, verb=f"impersonate-on:{self.name}:{access.verb}"))
        groups = await self._check_name(wanted, user, demand)
        if wanted.uid:
            await demand(Access(user, self._verb, _IDENTITY, "v1", "uids", name=wanted.uid))
        if wanted.groups:
            await self._check_groups(wanted.groups, user, demand)
        if wanted.extra:
            await self._check_extra(wanted.extra, user, demand)
        everybody = UNAUTHENTICATED if wanted.name == "system:anonymous" else AUTHENTICATED
        if everybody not in groups and UNAUTHENTICATED not in groups:
            groups = (*groups, everybody)
        return UserInfo(wanted.name, wanted.uid, groups, wanted.extra)

    async def _check_name(self, wanted: UserInfo, user: UserInfo, demand: Demand) -> tuple[str, ...]:
        """The groups that the wanted user has."""
        groups = wanted.groups
        resource, namespace, name = "users", "", wanted.name
        node, account = _node(wanted.name) if self.name else "", service_account(wanted.name)
        if node:
            resource, name = "nodes", "*" if self.name == "associated-node" else node
            groups = ("system:nodes",)
        elif account is not None:
            resource, (namespace, name) = "serviceaccounts", account
            groups = groups or ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        await demand(Access(user, self._verb, self._group, self._version, resource, namespace=namespace, name=name))
        return groups

    async def _check_groups(self, groups: Sequence[str], user: UserInfo, demand: Demand) -> None:
        wish = Access(user, self._verb, self._group, self._version, "groups")
        if self.name:
            if "" in groups:
                raise forbidden(wish, "impersonating the empty string group is not allowed")
            if MASTERS in groups:
                raise forbidden(wish._replace(name=MASTERS), "impersonating the system:masters group is not allowed")
            if len(groups) >= _MANY and await _passes(demand, wish._replace(name="*")):
                return
        for group in groups:
            await demand(wish._replace(name=group))

    async def _check_extra(self, extra: Mapping[str, Sequence[str]], user: UserInfo, demand: Demand) -> None:
        wish = Access(user, self._verb, _IDENTITY, "v1", "userextras")
        if self.name:
            for key, values in extra.items():
                refusal = _bad_extra(key, values)
                if refusal:
                    raise forbidden(wish, refusal)
            many = len(extra) >= _MANY or sum(map(len, extra.values())) >= _MANY
            if many and await _passes(demand, wish._replace(subresource="*", name="*")):
                return
        for key, values in extra.items():
            for value in values:
                await demand(wish._replace(subresource=key, name=value))


async def _passes(demand: Demand, wish: Access) -> bool:
    try:
        await demand(wish)
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
