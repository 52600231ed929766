"""Admission policies read their parameters with the server's rights. So who names parameters must be able to read them:
all of a kind for a policy, those that are referred to for a binding."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import MASTERS, Access, AuthorizerChain, Decision, Problem
from setpoint.apiserver.watch_cache import Obj
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.field import Errors, forbidden

PluralOf = Callable[[str, str, str], str]
"""The plural of a group, version and kind; empty: there is no such kind."""
PolicyNamed = Callable[[str], Obj | None]


class PolicyGuard(Hooks):
    judges = True

    def __init__(self, authorizer: AuthorizerChain, plural_of: PluralOf) -> None:
        self._authorizer = authorizer
        self._plural_of = plural_of

    async def objections(self, call: Call, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        kind = obj["spec"].get("paramKind")
        unchanged = old is not None and old["spec"].get("paramKind") == kind
        if not well_formed or call.target.subresource or not kind or unchanged or MASTERS in call.user.groups:
            return []
        group, version, plural = _resolved(kind, self._plural_of)
        access = Access(call.user, "get", group, version, plural or "*", namespace="*", name="*")
        decision, reason = await self._authorizer.decide(access)
        if decision is Decision.ALLOW:
            return []
        text = (
            f'user {shown(call.user)} must have "get" permission on all objects of the referenced paramKind '
            f"(kind={kind.get('kind', '')}, apiVersion={kind.get('apiVersion', '')})"
        )
        return [forbidden("spec.paramKind", reason if isinstance(reason, Problem) else text)]


class PolicyBindingGuard(Hooks):
    judges = True

    def __init__(self, authorizer: AuthorizerChain, plural_of: PluralOf, policy: PolicyNamed) -> None:
        self._authorizer = authorizer
        self._plural_of = plural_of
        self._policy = policy

    async def objections(self, call: Call, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        spec = obj["spec"]
        reference = spec.get("paramRef")
        if not well_formed or call.target.subresource or not reference or MASTERS in call.user.groups:
            return []
        policy = self._policy(spec["policyName"])
        kind = policy["spec"].get("paramKind") if policy is not None else None
        group, version, plural = _resolved(kind, self._plural_of) if kind else ("*", "*", "*")
        name = reference.get("name", "")
        verb = "get" if name else "list"
        access = Access(
            call.user, verb, group, version, plural or "*", namespace=reference.get("namespace", ""), name=name
        )
        decision, reason = await self._authorizer.decide(access)
        if decision is Decision.ALLOW:
            return []
        if isinstance(reason, Problem):
            return [forbidden("spec.paramRef", f"failed to authorize request: {reason}")]
        who, unknown = shown(call.user), ""
        if policy is None:
            unknown = f"unable to get policy {spec['policyName']}"
        elif kind and not plural:
            unknown = f"unable to resolve paramKind &{{{kind.get('apiVersion', '')} {kind.get('kind', '')}}}"
        if unknown:
            text = (
                f'{unknown} to determine minimum required permissions and user {who} does not have "{verb}" permission '
                "for all groups, versions and resources"
            )
        else:
            text = f'user {who} does not have "{verb}" permission on the object referenced by paramRef'
        return [forbidden("spec.paramRef", text)]


def _resolved(kind: Obj, plural_of: PluralOf) -> tuple[str, str, str]:
    group, _, version = kind.get("apiVersion", "").rpartition("/")
    return group, version, plural_of(group, version, kind.get("kind", ""))


def shown(user: UserInfo) -> str:
    """As Go shows it."""
    extra = " ".join(f"{key}:[{' '.join(values)}]" for key, values in sorted(user.extra.items()))
    return f"&{{{user.name} {user.uid} [{' '.join(user.groups)}] map[{extra}]}}"
