"""One write and the webhooks it matches: whether each is to be asked, and what it says."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from setpoint.apiserver.admission.dynamic.matching import Matcher
from setpoint.apiserver.admission.dynamic.served import Served
from setpoint.apiserver.admission.dynamic.webhook_review import (
    MalformedReview,
    NoReview,
    Verdict,
    rejection,
    review_of,
    verdict_of,
)
from setpoint.apiserver.admission.dynamic.webhook_source import Webhook
from setpoint.apiserver.admission.plugin import Attributes, Obj
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.webhook_client import WebhookClient, WebhookProblem
from setpoint.apiserver.webhook_identities import NoIdentity
from setpoint.kinds.catalog import Resource
from setpoint.meta.clock import Ids
from setpoint.meta.errors import BadRequest, Forbidden
from setpoint.meta.goformat import quote


class CallFailed(Exception):
    """A webhook gave no usable answer; what that means is for its failure policy to say."""


@dataclass(slots=True)
class Invocation:
    webhook: Webhook
    matched: Resource
    obj: Obj | None
    old: Obj | None
    """As the webhook sees them."""


@dataclass(frozen=True, slots=True)
class Caller:
    client: WebhookClient
    served: Served
    matcher: Matcher
    authorizer: AuthorizerChain
    ids: Ids

    async def invocation(self, webhook: Webhook, attrs: Attributes) -> Invocation | None:
        """None: the webhook is not for this write. Raises NotFound, Forbidden."""
        matched = self.matcher.match(webhook.criteria, attrs)
        if matched is None:
            return None
        obj = await self.served.object_of(attrs, attrs.obj, matched)
        old = await self.served.object_of(attrs, attrs.old, matched)
        found = Invocation(webhook, matched, obj, old)
        return found if not webhook.has_conditions or await self._conditions_hold(found, attrs) else None

    async def _conditions_hold(self, invocation: Invocation, attrs: Attributes) -> bool:
        from setpoint.apiserver.admission.dynamic.expressions import ConditionError, Subject, conditions_hold

        webhook = invocation.webhook
        subject = Subject(attrs, invocation.matched, invocation.obj, invocation.old, self.authorizer)
        bindings = subject.with_params(None, None, matched=attrs.resource)
        try:
            return await subject.answered(
                lambda: conditions_hold(webhook.conditions, bindings, None, webhook.ignores_failure)
            )
        except ConditionError as error:
            raise Forbidden.of(attrs.resource.group, attrs.resource.plural, attrs.name, str(error)) from None

    async def ask(self, invocation: Invocation, attrs: Attributes, mutating: bool) -> Verdict:
        """What an allowing webhook says besides. Raises CallFailed, and ApiError where it refuses."""
        webhook = invocation.webhook
        if attrs.dry_run and webhook.has_side_effects:
            raise BadRequest(f"admission webhook {quote(webhook.name)} does not support dry run")
        if not webhook.review_version:
            raise _failed(
                webhook,
                "could not create admission objects: "
                "webhook does not accept known AdmissionReview versions (v1, v1beta1)",
            )
        uid = self.ids.uid()
        review = review_of(attrs, invocation.matched, invocation.obj, invocation.old, webhook.review_version, uid)
        try:
            answer = await self.client.ask(webhook.hook["clientConfig"], orjson.dumps(review), webhook.timeout)
            verdict = verdict_of(answer, webhook.review_version, uid, mutating)
        except (WebhookProblem, NoReview) as problem:
            raise _failed(webhook, f"failed to call webhook: {problem}") from None
        except NoIdentity as problem:
            raise _failed(webhook, f"could not get REST client: {problem}") from None
        except MalformedReview as problem:
            raise _failed(webhook, f"received invalid webhook response: {problem}") from None
        for key, value in verdict.annotations.items():
            attrs.audit[f"{webhook.name}/{key}"] = value
        for text in verdict.warnings:
            if text not in attrs.warnings:
                attrs.warnings.append(text)
        if not verdict.allowed:
            raise rejection(webhook.name, verdict.result)
        return verdict


def _failed(webhook: Webhook, why: str) -> CallFailed:
    return CallFailed(f"failed calling webhook {quote(webhook.name)}: {why}")
