"""An authorizer that asks a webhook with a SubjectAccessReview, and keeps the answers for a while."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import orjson

from setpoint.apiserver.authorization.match_conditions import MatchConditions
from setpoint.apiserver.filters.authorize import Access, Decision, Problem, Rules, Ruling
from setpoint.apiserver.review_webhook import ReviewWebhook
from setpoint.apiserver.webhook_client import WebhookProblem
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.selectors import Requirement
from setpoint.meta.ttl_cache import TtlCache

log = logging.getLogger("setpoint.apiserver")

Obj = dict[str, Any]
_REMEMBERED = 8192
_LONGEST = 10_000
"""Of what the asker chooses: longer questions are not kept, so that nobody can fill the memory."""
_FIELD_OPERATORS = {"=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn"}
_LABEL_OPERATORS = {**_FIELD_OPERATORS, "exists": "Exists", "!": "DoesNotExist"}


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    name: str = "default"
    version: str = "v1beta1"
    """Of the SubjectAccessReview."""
    kept_allowed: float = 300.0
    kept_others: float = 30.0
    denies_on_failure: bool = False


class WebhookAuthorizer:
    def __init__(
        self, webhook: ReviewWebhook, clock: Clock, options: WebhookOptions, conditions: MatchConditions | None = None
    ) -> None:
        self.name = options.name
        self._webhook = webhook
        self._options = options
        self._api_version = f"authorization.k8s.io/{options.version}"
        self._conditions = conditions
        self._on_failure = Decision.DENY if options.denies_on_failure else Decision.NO_OPINION
        self._known: TtlCache[bytes, Obj] = TtlCache(_REMEMBERED, clock)

    def authorize(self, access: Access) -> Ruling | Awaitable[Ruling]:
        spec = spec_of(access)
        if self._conditions is not None:
            holds = self._conditions.hold(spec)
            if isinstance(holds, Problem):
                return self._on_failure, holds
            if not holds:
                return Decision.NO_OPINION, ""
        key = orjson.dumps(spec)
        known = self._known.get(key)
        if known is not None:
            return _ruling(known)
        return self._ask(spec, key, access)

    async def _ask(self, spec: Obj, key: bytes, access: Access) -> Ruling:
        try:
            status = await self._webhook.ask(self._api_version, "SubjectAccessReview", spec)
        except WebhookProblem as problem:
            log.error("Failed to make webhook authorizer request: %s", problem)
            return self._on_failure, Problem(str(problem))
        kept = self._options.kept_allowed if status.get("allowed") is True else self._options.kept_others
        if kept > 0 and _length(access) < _LONGEST:
            self._known.keep(key, status, kept)
        return _ruling(status)

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        return Rules([], ["webhook authorizer does not support user rule resolution"], True)


def _ruling(status: Obj) -> Ruling:
    allowed, denied, reason = status.get("allowed") is True, status.get("denied") is True, status.get("reason")
    text = reason if isinstance(reason, str) else ""
    if allowed and denied:
        return Decision.DENY, Problem("webhook subject access review returned both allow and deny response", text)
    if denied:
        return Decision.DENY, text
    return (Decision.ALLOW if allowed else Decision.NO_OPINION), text


def _length(access: Access) -> int:
    return sum(len(part) for part in access[1:9] if isinstance(part, str))


def spec_of(access: Access) -> Obj:
    """As the webhook gets it; what is empty is left out."""
    user = access.user
    spec: Obj = {}
    if access.path is None:
        named = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
        attributes: Obj = {name: value for name in named if (value := getattr(access, name))}
        for name, requirements, operators in (
            ("fieldSelector", access.fields, _FIELD_OPERATORS), ("labelSelector", access.labels, _LABEL_OPERATORS),
        ):  # fmt: skip
            shown = [_requirement(one, operators) for one in requirements if one.operator in operators]
            if shown:
                attributes[name] = {"requirements": shown}
        spec["resourceAttributes"] = attributes
    else:
        spec["nonResourceAttributes"] = {"path": access.path, "verb": access.verb}
    for name, value in (
        ("user", user.name), ("groups", list(user.groups)),
        ("extra", {key: list(user.extra[key]) for key in sorted(user.extra)}), ("uid", user.uid),
    ):  # fmt: skip
        if value:
            spec[name] = value
    return spec


def _requirement(one: Requirement, operators: dict[str, str]) -> Obj:
    shown: Obj = {"key": one.key, "operator": operators[one.operator]}
    return shown | {"values": list(one.values)} if one.values else shown
