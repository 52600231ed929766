"""TokenReview, SelfSubjectReview, SubjectAccessReview and its variants: objects that are computed and never stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from setpoint.apiserver.admission.plugin import Attributes, Chain
from setpoint.apiserver.bodies import read_resource
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.filters.authorize import (
    MAX_SELECTOR_LENGTH,
    Access,
    AuthorizerChain,
    Decision,
    Problem,
)
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.preparation import OTHER_NAMESPACE
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond
from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import UserInfo
from setpoint.meta import apply
from setpoint.meta.errors import BadRequest, Invalid
from setpoint.meta.field import Errors
from setpoint.meta.goformat import aggregate
from setpoint.meta.names import label_value, qualified_name
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import Requirement, Selector, SelectorError, parse_fields, parse_labels
from setpoint.meta.times import format_time
from setpoint.wire.message import Answer

_META_ORDER = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


def read_review(
    ctx: RequestContext,
    resource: Resource,
    default: Callable[[Obj], None] | None = None,
    *,
    keep_system_fields: bool = False,
) -> Obj:
    """Return the review in the body, in the namespace of the request, with managedFields of the caller."""
    write_options(ctx, "CreateOptions")
    obj = read_resource(ctx, resource)
    if default is not None:
        default(obj)
    ctx.record_request_object(obj, resource.kind, resource.api_version)
    meta, namespace = obj["metadata"], ctx.target.namespace
    if not keep_system_fields:
        for name in _SYSTEM_FIELDS:
            meta.pop(name, None)
    if namespace and meta.get("namespace", namespace) != namespace:
        raise BadRequest(OTHER_NAMESPACE)
    meta.pop("namespace", None)
    if namespace:
        meta["namespace"] = namespace
    entries = apply.update(
        apply.WrittenVersion(resource.type, resource.api_version),
        None,
        obj,
        manager=ctx.field_manager,
        subresource=ctx.target.subresource,
        now=format_time(ctx.now),
    )
    if entries:
        meta["managedFields"] = entries
    obj["metadata"] = ordered_metadata(meta)
    return obj


def ordered_metadata(meta: Obj) -> Obj:
    return {name: meta[name] for name in _META_ORDER if name in meta}


async def admit_review(ctx: RequestContext, admission: Chain, obj: Obj) -> None:
    """Validate the review and call admission. Raises ApiError."""
    resource = ctx.resource
    assert resource is not None
    attrs = Attributes(
        operation="CREATE",
        resource=resource,
        subresource="",
        namespace=ctx.target.namespace,
        name=obj["metadata"].get("name", ""),
        obj=obj,
        old=None,
        user=ctx.user,
        now=ctx.now,
        dry_run=ctx.dry_run,
        warnings=ctx.warnings,
    )
    if ctx.audit is not None:
        attrs.audit, attrs.audit_objects = ctx.audit.annotations, ctx.audit.includes_objects
    await admission.mutate(attrs)
    errs: Errors = []
    await ctx.compute(resource.strategy.validate, obj, errs, ctx.strategy_context())
    if errs:
        # Upstream has forgotten the kind by then.
        raise Invalid.of(resource.group, "", "", errs)
    await admission.validate(attrs)


def respond_review(resource: Resource, form: Form, obj: Obj) -> Answer:
    body = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
    return respond(form, orjson.dumps(body) + b"\n", 201)


def user_info(user: UserInfo) -> Obj:
    """A user as authentication.k8s.io writes it; what is empty is left out."""
    extra = {key: list(user.extra[key]) for key in sorted(user.extra)}
    info = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    return {key: value for key, value in info.items() if value}


class IdentityReviews:
    def __init__(self, admission: Chain, authenticator: AuthenticatorChain) -> None:
        self._admission = admission
        self._authenticator = authenticator

    async def token(self, ctx: RequestContext, _: Registry, form: Form) -> Answer:
        assert ctx.resource is not None
        review = await ctx.compute(read_review, ctx, ctx.resource)
        await admit_review(ctx, self._admission, review)
        spec = review["spec"]
        verified, error = await self._authenticator.review(spec["token"], spec.get("audiences") or ())
        status: Obj = {"authenticated": True} if verified is not None else {}
        status["user"] = user_info(verified.user) if verified is not None else {}
        if verified is not None and verified.audiences:
            status["audiences"] = list(verified.audiences)
        if error:
            status["error"] = error
        review["status"] = status
        return respond_review(ctx.resource, form, review)

    async def self_(self, ctx: RequestContext, _: Registry, form: Form) -> Answer:
        assert ctx.resource is not None
        await admit_review(ctx, self._admission, await ctx.compute(read_review, ctx, ctx.resource))
        status = {"userInfo": user_info(ctx.user)}
        return respond_review(
            ctx.resource, form, {"metadata": {"creationTimestamp": format_time(ctx.now)}, "status": status}
        )


class AccessReviews:
    def __init__(self, admission: Chain, authorizer: AuthorizerChain) -> None:
        self._admission = admission
        self._authorizer = authorizer

    async def subject(self, ctx: RequestContext, _: Registry, form: Form) -> Answer:
        """Answer a SubjectAccessReview or LocalSubjectAccessReview."""
        return await self._review(ctx, form, lambda spec: _subject(spec))

    async def self_(self, ctx: RequestContext, _: Registry, form: Form) -> Answer:
        return await self._review(ctx, form, lambda _: ctx.user)

    async def _review(self, ctx: RequestContext, form: Form, user_of: Callable[[Obj], UserInfo]) -> Answer:
        assert ctx.resource is not None
        review = await ctx.compute(read_review, ctx, ctx.resource)
        await admit_review(ctx, self._admission, review)
        spec = review["spec"]
        access, errors = await ctx.compute(_access, user_of(spec), spec)
        decision, reason = await self._authorizer.decide(access)
        status: Obj = {"allowed": decision is Decision.ALLOW}
        if decision is Decision.DENY:
            status["denied"] = True
        if isinstance(reason, Problem):
            errors.insert(0, str(reason))
            reason = reason.reason
        if reason:
            status["reason"] = reason
        if errors:
            status["evaluationError"] = "; ".join(errors)
        review["status"] = status
        return respond_review(ctx.resource, form, review)

    async def rules(self, ctx: RequestContext, _: Registry, form: Form) -> Answer:
        assert ctx.resource is not None
        review = await ctx.compute(read_review, ctx, ctx.resource)
        await admit_review(ctx, self._admission, review)
        rules, errors, incomplete = self._authorizer.rules_for(ctx.user, review["spec"]["namespace"])
        status: Obj = {
            "resourceRules": [
                _only(rule, ("verbs", "apiGroups", "resources", "resourceNames"))
                for rule in rules
                if rule.get("resources")
            ],
            "nonResourceRules": [
                _only(rule, ("verbs", "nonResourceURLs")) for rule in rules if rule.get("nonResourceURLs")
            ],
            "incomplete": incomplete,
        }
        if errors:
            status["evaluationError"] = aggregate(errors)
        return respond_review(ctx.resource, form, {"metadata": {}, "spec": {}, "status": status})


def _only(rule: Mapping[str, Any], keys: tuple[str, ...]) -> Obj:
    return {key: rule[key] for key in keys if rule.get(key)}


def _subject(spec: Obj) -> UserInfo:
    return UserInfo(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()), spec.get("extra") or {})


def _access(user: UserInfo, spec: Obj) -> tuple[Access, list[str]]:
    """Return the requested access, and the errors in its selectors."""
    wanted = spec.get("resourceAttributes")
    if wanted is None:
        wanted = spec["nonResourceAttributes"]
        return Access(user, wanted.get("verb", ""), path=wanted.get("path", "")), []
    fields, labels, ignored = _selectors(wanted)
    verb, group, version, resource, subresource, namespace, name = (
        wanted.get(key, "") for key in ("verb", "group", "version", "resource", "subresource", "namespace", "name")
    )
    access = Access(user, verb, group, version or "*", resource, subresource, namespace, name, None, fields, labels)
    return access, ignored


# -- selectors ----------------------------------------------------------------------------------------------------

_FIELD_OPERATORS = {"In": "=", "NotIn": "!="}
_LABEL_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
_Requirements = tuple[Requirement, ...]


def _selectors(attributes: Obj) -> tuple[_Requirements, _Requirements, list[str]]:
    """Return the requirements on fields and labels that can be parsed, and errors for the others. Without a
    requirement, the requested access is wider, never narrower."""
    errors: list[str] = []
    read_review: list[_Requirements] = []
    for name, parse, readable in (
        ("fieldSelector", parse_fields, _field_requirement),
        ("labelSelector", parse_labels, _label_requirement),
    ):
        found, complete = _requirements(attributes.get(name) or {}, parse, readable)
        read_review.append(found)
        if not complete:
            partly = "partially " if found else ""
            errors.append(f"spec.resourceAttributes.{name} {partly}ignored due to parse error")
    return read_review[0], read_review[1], errors


def _requirements(
    selector: Obj, parse: Callable[[str], Selector], readable: Callable[[Obj], Requirement | None]
) -> tuple[_Requirements, bool]:
    listed = selector.get("requirements") or ()
    if listed:
        found = tuple(each for each in map(readable, listed) if each is not None)
        return found, len(found) == len(listed)
    text = selector.get("rawSelector", "")
    if len(text) > MAX_SELECTOR_LENGTH:
        return (), False  # nor would it restrict a request
    try:
        return parse(text).requirements, True
    except SelectorError:
        return (), False


def _field_requirement(requirement: Obj) -> Requirement | None:
    operator, values = _FIELD_OPERATORS.get(requirement.get("operator", "")), tuple(requirement.get("values") or ())
    if operator is None or len(values) != 1:
        return None
    return Requirement(requirement.get("key", ""), operator, values)


def _label_requirement(requirement: Obj) -> Requirement | None:
    key, values = requirement.get("key", ""), tuple(requirement.get("values") or ())
    operator = _LABEL_OPERATORS.get(requirement.get("operator", ""))
    if operator is None or (operator in ("in", "notin")) != bool(values):
        return None
    if qualified_name(key) or any(map(label_value, values)):
        return None
    return Requirement(key, operator, values)
