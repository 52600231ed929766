"""SubjectAccessReview and its kin: may somebody do something? And: what may I do in a namespace?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import LONGEST_SELECTOR, Access, Decision, Problem
from setpoint.apiserver.handlers.reviews.question import admit, answer, read
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.goformat import aggregate
from setpoint.meta.names import label_value, qualified_name
from setpoint.meta.selectors import Requirement, Selector, SelectorError, parse_fields, parse_labels


class AccessReviews:
    def __init__(self, api: ApiServer) -> None:
        self._api = api

    async def subject(self, call: Call, _: Registry, form: Form) -> Answer:
        """SubjectAccessReview and LocalSubjectAccessReview."""
        return await self._review(call, form, lambda spec: _subject(spec))

    async def self_(self, call: Call, _: Registry, form: Form) -> Answer:
        return await self._review(call, form, lambda _: call.user)

    async def _review(self, call: Call, form: Form, user_of: Callable[[Obj], UserInfo]) -> Answer:
        assert call.resource is not None
        review = await call.work(read, call, call.resource)
        await admit(call, self._api.env.admission, review)
        spec = review["spec"]
        access, errors = await call.work(_access, user_of(spec), spec)
        decision, reason = await self._api.authorizer.decide(access)
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
        return answer(call.resource, form, review)

    async def rules(self, call: Call, _: Registry, form: Form) -> Answer:
        assert call.resource is not None
        review = await call.work(read, call, call.resource)
        await admit(call, self._api.env.admission, review)
        rules, errors, incomplete = self._api.authorizer.rules_for(call.user, review["spec"]["namespace"])
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
        return answer(call.resource, form, {"metadata": {}, "spec": {}, "status": status})


def _only(rule: Mapping[str, Any], keys: tuple[str, ...]) -> Obj:
    return {key: rule[key] for key in keys if rule.get(key)}


def _subject(spec: Obj) -> UserInfo:
    return UserInfo(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()), spec.get("extra") or {})


def _access(user: UserInfo, spec: Obj) -> tuple[Access, list[str]]:
    """What is asked for, and what of it could not be read."""
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
    """Of fields and of labels, as far as they can be read, and what to say of the rest: without it, more is asked for
    than was meant, never less."""
    told: list[str] = []
    read: list[_Requirements] = []
    for name, parse, readable in (
        ("fieldSelector", parse_fields, _field_requirement),
        ("labelSelector", parse_labels, _label_requirement),
    ):
        found, complete = _requirements(attributes.get(name) or {}, parse, readable)
        read.append(found)
        if not complete:
            partly = "partially " if found else ""
            told.append(f"spec.resourceAttributes.{name} {partly}ignored due to parse error")
    return read[0], read[1], told


def _requirements(
    selector: Obj, parse: Callable[[str], Selector], readable: Callable[[Obj], Requirement | None]
) -> tuple[_Requirements, bool]:
    listed = selector.get("requirements") or ()
    if listed:
        found = tuple(each for each in map(readable, listed) if each is not None)
        return found, len(found) == len(listed)
    text = selector.get("rawSelector", "")
    if len(text) > LONGEST_SELECTOR:
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
