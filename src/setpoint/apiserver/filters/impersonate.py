"""Acting as somebody else, for those who may: the Impersonate-* headers."""

from __future__ import annotations

from urllib.parse import unquote

from setpoint.apiserver.filters.authenticate import AUTHENTICATED
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain, Decision, forbidden
from setpoint.apiserver.http.message import Request
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import BadRequest
from setpoint.meta.goformat import quote

_EXTRA = "impersonate-extra-"


def impersonate(request: Request, user: UserInfo, authorizer: AuthorizerChain) -> UserInfo:
    """The user to act as: the caller, or whom it impersonates. Raises Forbidden."""
    headers = request.headers
    if not any(name.startswith("impersonate-") for name in headers):
        return user
    name = headers.get("impersonate-user", "")
    groups = _values(request, "impersonate-group")
    uid = headers.get("impersonate-uid", "")
    extra = {unquote(key[len(_EXTRA) :]): _values(request, key) for key in headers if key.startswith(_EXTRA)}
    if not name:
        if groups or uid or extra:
            shown = "[]string{" + ", ".join(quote(group) for group in groups) + "}" if groups else "[]string(nil)"
            raise BadRequest(
                f'requested &user.DefaultInfo{{Name:"", UID:{quote(uid)}, Groups:{shown}, '
                "Extra:map[string][]string(nil)} without impersonating a user name"
            )
        return user
    wanted: list[Access] = []
    if name.startswith("system:serviceaccount:") and name.count(":") == 3:
        _, _, namespace, account = name.split(":")
        wanted.append(
            Access(user, "impersonate", "", "v1", "serviceaccounts", namespace=namespace, name=account)
        )
        if not groups:
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    else:
        wanted.append(Access(user, "impersonate", "", "v1", "users", name=name))
    for group in _values(request, "impersonate-group"):
        wanted.append(Access(user, "impersonate", "", "v1", "groups", name=group))
    if uid:
        wanted.append(Access(user, "impersonate", "authentication.k8s.io", "v1", "uids", name=uid))
    for key, values in extra.items():
        for value in values:
            wanted.append(
                Access(user, "impersonate", "authentication.k8s.io", "v1", "userextras", subresource=key, name=value)
            )
    for access in wanted:
        decision, reason = authorizer.authorize(access)
        if decision is not Decision.ALLOW:
            raise forbidden(access, reason)
    everybody = "system:unauthenticated" if name == "system:anonymous" else AUTHENTICATED
    if everybody not in groups:
        groups = [*groups, everybody]
    return UserInfo(name, uid, tuple(groups), extra)


def _values(request: Request, header: str) -> list[str]:
    if header in request.repeated:
        return request.repeated[header]
    return [request.headers[header]] if header in request.headers else []
