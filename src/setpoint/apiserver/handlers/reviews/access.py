"""SubjectAccessReview and its kin: may somebody do something? And: what may I do in a namespace?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import Access, Decision, Problem
from setpoint.apiserver.handlers.reviews.question import admit, answer, read
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.goformat import aggregate
from setpoint.meta.names import label_value, qualified_name
from setpoint.meta.selectors import SelectorError, parse_fields, parse_labels


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
        review = read(call, call.resource)
        await admit(call, self._api.env.admission, review)
        spec = review["spec"]
        decision, reason = await self._api.authorizer.decide(_access(user_of(spec), spec))
        status: Obj = {"allowed": decision is Decision.ALLOW}
        if decision is Decision.DENY:
            status["denied"] = True
        errors = _ignored_selectors(spec.get("resourceAttributes") or {})
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
        review = read(call, call.resource)
        await admit(call, self._api.env.admission, review)
        rules, errors = self._api.authorizer.rules_for(call.user, review["spec"]["namespace"])
        status: Obj = {
            "resourceRules": [
                _only(rule, ("verbs", "apiGroups", "resources", "resourceNames"))
                for rule in rules
                if rule.get("resources")
            ],
            "nonResourceRules": [
                _only(rule, ("verbs", "nonResourceURLs")) for rule in rules if rule.get("nonResourceURLs")
            ],
            "incomplete": False,
        }
        if errors:
            status["evaluationError"] = aggregate(errors)
        return answer(call.resource, form, {"metadata": {}, "spec": {}, "status": status})


def _only(rule: Mapping[str, Any], keys: tuple[str, ...]) -> Obj:
    return {key: rule[key] for key in keys if rule.get(key)}


def _subject(spec: Obj) -> UserInfo:
    return UserInfo(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()), spec.get("extra") or {})


def _access(user: UserInfo, spec: Obj) -> Access:
    wanted = spec.get("resourceAttributes")
    if wanted is None:
        wanted = spec["nonResourceAttributes"]
        return Access(user, wanted.get("verb", ""), path=wanted.get("path", ""))
    return Access(
        user,
        wanted.get("verb", ""),
        wanted.get("group", ""),
        wanted.get("version") or "*",
        wanted.get("resource", ""),
        wanted.get("subresource", ""),
        wanted.get("namespace", ""),
        wanted.get("name", ""),
    )


# -- selectors ----------------------------------------------------------------------------------------------------
# No authorizer here looks at them, but whoever asks is told what could not even be read.


def _ignored_selectors(attributes: Obj) -> list[str]:
    told = []
    for name, parse, readable in (
        ("fieldSelector", parse_fields, _field_requirement),
        ("labelSelector", parse_labels, _label_requirement),
    ):
        selector = attributes.get(name)
        if selector is None:
            continue
        requirements = selector.get("requirements") or ()
        if requirements:
            good = sum(map(readable, requirements))
            if good == len(requirements):
                continue
            partly = "partially " if good else ""
        else:
            try:
                parse(selector.get("rawSelector", ""))
                continue
            except SelectorError:
                partly = ""
        told.append(f"spec.resourceAttributes.{name} {partly}ignored due to parse error")
    return told


def _field_requirement(requirement: Obj) -> bool:
    return requirement.get("operator") in ("In", "NotIn") and len(requirement.get("values") or ()) == 1


def _label_requirement(requirement: Obj) -> bool:
    values = requirement.get("values") or ()
    if requirement.get("operator") not in ("In", "NotIn", "Exists", "DoesNotExist"):
        return False
    if requirement["operator"] in ("In", "NotIn") and not values:
        return False
    return not qualified_name(requirement.get("key", "")) and not any(map(label_value, values))
