"""Authorization of the content of writes, in addition to the verb.

Roles and bindings may only grant rights that the user has. Admission policies read their parameters with the rights of
the server, so a user who writes a policy or binding must be able to read them. Admin access to devices requires a label
of the namespace, and each part of a ResourceClaim's status requires a permission of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from setpoint.apiserver.api_resources import CacheReader
from setpoint.apiserver.filters.authorize import MASTERS, Access, AuthorizerChain, Decision, Problem, Rule, access_of
from setpoint.apiserver.filters.authorize import forbidden as refused
from setpoint.apiserver.filters.impersonate import service_account
from setpoint.apiserver.filters.rbac import GROUP, Policy, compacted, described, uncovered
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import BadRequest, Forbidden, NotFound, PlainServerError
from setpoint.meta.field import Errors, forbidden
from setpoint.meta.goformat import aggregate, quote, quote_all
from setpoint.meta.objects import Obj
from setpoint.store.interface import Op

_ALL_RIGHTS: tuple[Rule, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
_GARBAGE_COLLECTION_FIELDS = ("ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion")
_ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
_NODE_NAME = "authentication.kubernetes.io/node-name"


class _EscalationGuard(Hooks):
    def __init__(self, policy: Policy, authorizer: AuthorizerChain) -> None:
        self._policy = policy
        self._authorizer = authorizer

    async def before_create(self, ctx: RequestContext, obj: Obj) -> list[Op]:
        if MASTERS not in ctx.user.groups:
            await self.check(ctx, obj, None)
        return []

    async def before_update(self, ctx: RequestContext, obj: Obj, old: Obj) -> list[Op]:
        if MASTERS not in ctx.user.groups and not _changes_only_ownership(obj, old):
            await self.check(ctx, obj, old)
        return []

    async def check(self, ctx: RequestContext, obj: Obj, old: Obj | None) -> None:
        raise NotImplementedError

    def _escalation(self, ctx: RequestContext, rules: Iterable[Rule]) -> str:
        """Describe the rights that the user would grant without having them, or return "" if there are none."""
        user = ctx.user
        grants = self._policy.grants(user, ctx.target.namespace)
        missing = uncovered([rule for grant in grants for rule in grant.rules or ()], rules)
        if not missing:
            return ""
        shown = "\n".join(sorted({described(rule) for rule in compacted(missing)}))
        text = (
            f"user {quote(user.name)} (groups={quote_all(user.groups)}) is attempting to grant RBAC permissions "
            f"not currently held:\n{shown}"
        )
        # Upstream names a missing role of the user's bindings by the resource of this request.
        missing_roles = [
            f"{ctx.target.resource}.{GROUP} {quote(grant.binding['roleRef'].get('name', ''))} not found"
            for grant in grants
            if grant.rules is None
        ]
        return f"{text}; resolution errors: [{aggregate(missing_roles)}]" if missing_roles else text


def _given_name(ctx: RequestContext, obj: Obj) -> str:
    """Return the name of the object, or "" if it was generated: upstream checks before that."""
    meta = obj["metadata"]
    name, base = meta.get("name", ""), meta.get("generateName", "")
    generated = base and not ctx.target.name and name.startswith(base[:58]) and len(name) == len(base[:58]) + 5
    return "" if generated else name


def _changes_only_ownership(obj: Obj, old: Obj) -> bool:
    """Return whether only fields changed that garbage collection needs."""
    bare, before = (
        one
        | {"metadata": {key: value for key, value in one["metadata"].items() if key not in _GARBAGE_COLLECTION_FIELDS}}
        for one in (obj, old)
    )
    return bare == before


class RoleGuard(_EscalationGuard):
    """Checks Roles and ClusterRoles."""

    async def check(self, ctx: RequestContext, obj: Obj, old: Obj | None) -> None:
        target = ctx.target
        escalate = Access(
            ctx.user, "escalate", GROUP, "*", target.resource, namespace=target.namespace, name=target.name
        )
        if await self._authorizer.allows(escalate):
            return
        name = _given_name(ctx, obj)
        escalation = self._escalation(ctx, obj.get("rules") or ())
        if not escalation and (_aggregates(obj) or (old is not None and _aggregates(old))):
            # An aggregated role can get any right later.
            if self._escalation(ctx, _ALL_RIGHTS):
                escalation = "must have cluster-admin privileges to use the aggregationRule"
        if escalation:
            raise Forbidden.of(GROUP, target.resource, name, escalation)


def _aggregates(role: Obj) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


class BindingGuard(_EscalationGuard):
    """Checks RoleBindings and ClusterRoleBindings."""

    async def check(self, ctx: RequestContext, obj: Obj, old: Obj | None) -> None:
        target, reference = ctx.target, obj["roleRef"]
        kind, role = reference.get("kind", ""), reference.get("name", "")
        if kind not in ("Role", "ClusterRole"):
            raise PlainServerError(f"unsupported role reference kind: {quote(kind)}")
        bind = Access(
            ctx.user,
            "bind",
            reference.get("apiGroup", ""),
            "*",
            f"{kind.lower()}s",
            namespace=target.namespace,
            name=role,
        )
        if await self._authorizer.allows(bind):
            return
        if kind == "Role" and not target.namespace:
            raise BadRequest("Namespace parameter required.")
        if not role:
            raise BadRequest("Name parameter required.")
        rules: Sequence[Rule] | None = self._policy.role(reference, target.namespace)
        if rules is None:
            # Upstream names the resource that is written.
            raise NotFound.of(GROUP, target.resource, role)
        escalation = self._escalation(ctx, rules)
        if escalation:
            raise Forbidden.of(GROUP, target.resource, _given_name(ctx, obj), escalation)


PluralOf = Callable[[str, str, str], str]
"""Returns the plural of a group, version and kind, or "" if there is no such kind."""
PolicyNamed = Callable[[str], Obj | None]
"""Returns the policy with this name, or None."""


class PolicyGuard(Hooks):
    """Checks policies."""

    validates = True

    def __init__(self, authorizer: AuthorizerChain, plural_of: PluralOf) -> None:
        self._authorizer = authorizer
        self._plural_of = plural_of

    async def validate(self, ctx: RequestContext, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        kind = obj["spec"].get("paramKind")
        unchanged = old is not None and old["spec"].get("paramKind") == kind
        if not well_formed or ctx.target.subresource or not kind or unchanged or MASTERS in ctx.user.groups:
            return []
        group, version, plural = _resolved_kind(kind, self._plural_of)
        access = Access(ctx.user, "get", group, version, plural or "*", namespace="*", name="*")
        decision, reason = await self._authorizer.decide(access)
        if decision is Decision.ALLOW:
            return []
        text = (
            f'user {_go_format(ctx.user)} must have "get" permission on all objects of the referenced paramKind '
            f"(kind={kind.get('kind', '')}, apiVersion={kind.get('apiVersion', '')})"
        )
        return [forbidden("spec.paramKind", reason if isinstance(reason, Problem) else text)]


class PolicyBindingGuard(Hooks):
    """Checks bindings."""

    validates = True

    def __init__(self, authorizer: AuthorizerChain, plural_of: PluralOf, policy: PolicyNamed) -> None:
        self._authorizer = authorizer
        self._plural_of = plural_of
        self._policy = policy

    async def validate(self, ctx: RequestContext, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        spec = obj["spec"]
        reference = spec.get("paramRef")
        if not well_formed or ctx.target.subresource or not reference or MASTERS in ctx.user.groups:
            return []
        policy = self._policy(spec["policyName"])
        kind = policy["spec"].get("paramKind") if policy is not None else None
        group, version, plural = _resolved_kind(kind, self._plural_of) if kind else ("*", "*", "*")
        name = reference.get("name", "")
        verb = "get" if name else "list"
        access = Access(
            ctx.user, verb, group, version, plural or "*", namespace=reference.get("namespace", ""), name=name
        )
        decision, reason = await self._authorizer.decide(access)
        if decision is Decision.ALLOW:
            return []
        if isinstance(reason, Problem):
            return [forbidden("spec.paramRef", f"failed to authorize request: {reason}")]
        who, unknown = _go_format(ctx.user), ""
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


def _resolved_kind(kind: Obj, plural_of: PluralOf) -> tuple[str, str, str]:
    group, _, version = kind.get("apiVersion", "").rpartition("/")
    return group, version, plural_of(group, version, kind.get("kind", ""))


def _go_format(user: UserInfo) -> str:
    """Format a user as Go's %v does."""
    extra = " ".join(f"{key}:[{' '.join(values)}]" for key, values in sorted(user.extra.items()))
    return f"&{{{user.name} {user.uid} [{' '.join(user.groups)}] map[{extra}]}}"


class AdminAccessGuard(Hooks):
    """Checks ResourceClaimTemplates, whose specification cannot change."""

    validates = True

    def __init__(self, reader: CacheReader) -> None:
        self._reader = reader

    async def validate(self, ctx: RequestContext, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        spec = obj["spec"].get("spec") or {}
        return self.check_requests(ctx, spec) if old is None else []

    def check_requests(self, ctx: RequestContext, spec: Obj) -> Errors:
        requests = (spec.get("devices") or {}).get("requests") or ()
        return self.check_admin_access(ctx, "spec.devices.requests", [one.get("exactly") or {} for one in requests])

    def check_admin_access(self, ctx: RequestContext, path: str, wanted: Sequence[Obj]) -> Errors:
        at = _first_admin(wanted)
        if at is None:
            return []
        namespace = self._reader.get("", "namespaces", "", ctx.target.namespace) or {"metadata": {}}
        if (namespace["metadata"].get("labels") or {}).get(_ADMIN_ACCESS_LABEL) == "true":
            return []
        text = f"admin access to devices requires the `{_ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
        return [forbidden(f"{path}[{at}].adminAccess", text)]


class ClaimGuard(AdminAccessGuard):
    """Checks ResourceClaims and their status."""

    def __init__(self, reader: CacheReader, authorizer: AuthorizerChain) -> None:
        super().__init__(reader)
        self._authorizer = authorizer

    async def validate(self, ctx: RequestContext, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        if old is None:
            return self.check_requests(ctx, obj["spec"])
        if ctx.target.subresource != "status":
            return []
        status, before = obj.get("status") or {}, old.get("status") or {}
        errs: Errors = []
        if _first_admin(_device_results(before)) is None:
            errs += self.check_admin_access(ctx, "status.allocation.devices.results", _device_results(status))
        if any((status.get(part) or None) != (before.get(part) or None) for part in ("allocation", "reservedFor")):
            errs += await self._binding(ctx)
        if status.get("allocation"):
            errs += await self._drivers(ctx, status, before)
        return errs

    async def _binding(self, ctx: RequestContext) -> Errors:
        access = access_of(ctx)._replace(subresource="binding", namespace="", name="")
        refusal = await self._refusal(access)
        if not refusal:
            return []
        text = (
            'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", '
            f'verb="{access.verb}" permission: {refusal}'
        )
        return [forbidden("status.allocation", text)]

    async def _drivers(self, ctx: RequestContext, status: Obj, before: Obj) -> Errors:
        access = access_of(ctx)._replace(subresource="driver")
        verbs = [f"arbitrary-node:{access.verb}"]
        if _runs_on(ctx.user, _node_of(status["allocation"])):
            verbs.insert(0, f"associated-node:{access.verb}")
        errs: Errors = []
        for driver in sorted(_changed_drivers(status.get("devices") or (), before.get("devices") or ())):
            refusal = ""
            for verb in verbs:
                found = await self._refusal(access._replace(verb=verb, name=driver))
                refusal = refusal or found
                if not found:
                    break
            else:
                text = (
                    f'changing status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" '
                    f"permission: {refusal}"
                )
                errs.append(forbidden("status.devices", text))
        return errs

    async def _refusal(self, access: Access) -> str:
        """Return the reason of a refusal, or "" if the access is allowed."""
        decision, reason = await self._authorizer.decide(access)
        return "" if decision is Decision.ALLOW else refused(access, reason).message


def _device_results(status: Obj) -> Sequence[Obj]:
    return ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()


def _first_admin(wanted: Iterable[Obj]) -> int | None:
    return next((at for at, one in enumerate(wanted) if one.get("adminAccess")), None)


def _changed_drivers(devices: Iterable[Obj], before: Iterable[Obj]) -> set[str]:
    """Return the drivers of devices that were added, removed or changed."""
    there = {_device_key(device): device for device in before}
    changed = {device["driver"] for device in devices if there.pop(_device_key(device), None) != device}
    return changed | {device["driver"] for device in there.values()}


def _device_key(device: Obj) -> tuple[str, ...]:
    return tuple(str(device.get(part) or "") for part in ("driver", "pool", "device", "shareID"))


def _node_of(allocation: Obj) -> str:
    """Return the node of an allocation that is for a single node, or ""."""
    terms: Sequence[Obj] = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or ()) != 1:
        return ""
    field = terms[0]["matchFields"][0]
    values: Sequence[str] = field.get("values") or ()
    return values[0] if (field.get("key"), field.get("operator"), len(values)) == ("metadata.name", "In", 1) else ""


def _runs_on(user: UserInfo, node: str) -> bool:
    return bool(node) and service_account(user.name) is not None and tuple(user.extra.get(_NODE_NAME, ())) == (node,)
