"""Nobody gives away rights that they do not have: checked wherever a role or a binding is written.

To write a role one must hold everything in it (or `escalate`); to write a binding, all that is in its role (or `bind`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import MASTERS, Access, AuthorizerChain, Rule
from setpoint.apiserver.filters.rbac import GROUP, Policy
from setpoint.apiserver.filters.rbac_rules import compacted, described, uncovered
from setpoint.apiserver.watch_cache import Obj
from setpoint.apiserver.write_hooks import Hooks
from setpoint.meta.errors import BadRequest, Forbidden, NotFound, PlainServerError
from setpoint.meta.goformat import aggregate, quote, quote_all
from setpoint.store.interface import Op

_EVERYTHING: tuple[Rule, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
_COLLECTORS_FIELDS = ("ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion")


class _Guard(Hooks):
    def __init__(self, policy: Policy, authorizer: AuthorizerChain) -> None:
        self._policy = policy
        self._authorizer = authorizer

    async def before_create(self, call: Call, obj: Obj) -> list[Op]:
        if MASTERS not in call.user.groups:
            await self.check(call, obj, None)
        return []

    async def before_update(self, call: Call, obj: Obj, old: Obj) -> list[Op]:
        if MASTERS not in call.user.groups and not _only_for_collection(obj, old):
            await self.check(call, obj, old)
        return []

    async def check(self, call: Call, obj: Obj, old: Obj | None) -> None:
        raise NotImplementedError

    def _excess(self, call: Call, rules: Iterable[Rule]) -> str:
        """What is wrong with the caller giving these away; empty: nothing."""
        user = call.user
        grants = self._policy.grants(user, call.target.namespace)
        missing = uncovered([rule for grant in grants for rule in grant.rules or ()], rules)
        if not missing:
            return ""
        shown = "\n".join(sorted({described(rule) for rule in compacted(missing)}))
        text = (
            f"user {quote(user.name)} (groups={quote_all(user.groups)}) is attempting to grant RBAC permissions "
            f"not currently held:\n{shown}"
        )
        # A role that a binding of the caller names and that is not there goes by the resource of this request.
        lost = [
            f"{call.target.resource}.{GROUP} {quote(grant.binding['roleRef'].get('name', ''))} not found"
            for grant in grants
            if grant.rules is None
        ]
        return f"{text}; resolution errors: [{aggregate(lost)}]" if lost else text


def _given_name(call: Call, obj: Obj) -> str:
    """A name that was generated just now was not yet there when upstream looked."""
    meta = obj["metadata"]
    name, base = meta.get("name", ""), meta.get("generateName", "")
    generated = base and not call.target.name and name.startswith(base[:58]) and len(name) == len(base[:58]) + 5
    return "" if generated else name


def _only_for_collection(obj: Obj, old: Obj) -> bool:
    """Whether no more changes than what garbage collection needs."""
    bare, before = (
        one | {"metadata": {key: value for key, value in one["metadata"].items() if key not in _COLLECTORS_FIELDS}}
        for one in (obj, old)
    )
    return bare == before


class RoleGuard(_Guard):
    """Roles and ClusterRoles."""

    async def check(self, call: Call, obj: Obj, old: Obj | None) -> None:
        target = call.target
        escalate = Access(
            call.user, "escalate", GROUP, "*", target.resource, namespace=target.namespace, name=target.name
        )
        if await self._authorizer.allows(escalate):
            return
        name = _given_name(call, obj)
        excess = self._excess(call, obj.get("rules") or ())
        if not excess and (_aggregates(obj) or (old is not None and _aggregates(old))):
            # Such a role can come to hold anything.
            if self._excess(call, _EVERYTHING):
                excess = "must have cluster-admin privileges to use the aggregationRule"
        if excess:
            raise Forbidden.of(GROUP, target.resource, name, excess)


def _aggregates(role: Obj) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


class BindingGuard(_Guard):
    """RoleBindings and ClusterRoleBindings."""

    async def check(self, call: Call, obj: Obj, old: Obj | None) -> None:
        target, reference = call.target, obj["roleRef"]
        kind, role = reference.get("kind", ""), reference.get("name", "")
        if kind not in ("Role", "ClusterRole"):
            raise PlainServerError(f"unsupported role reference kind: {quote(kind)}")
        bind = Access(
            call.user, "bind", reference.get("apiGroup", ""), "*", f"{kind.lower()}s",
            namespace=target.namespace, name=role,
        )  # fmt: skip
        if await self._authorizer.allows(bind):
            return
        if kind == "Role" and not target.namespace:
            raise BadRequest("Namespace parameter required.")
        if not role:
            raise BadRequest("Name parameter required.")
        rules: Sequence[Rule] | None = self._policy.role(reference, target.namespace)
        if rules is None:
            # Under the resource that is being written, as upstream has it.
            raise NotFound.of(GROUP, target.resource, role)
        excess = self._excess(call, rules)
        if excess:
            raise Forbidden.of(GROUP, target.resource, _given_name(call, obj), excess)
