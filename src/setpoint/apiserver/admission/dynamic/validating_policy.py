"""ValidatingAdmissionPolicy: a write must satisfy the policies that are bound to it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson

from setpoint.apiserver.admission.dynamic.matching import Matcher
from setpoint.apiserver.admission.dynamic.params import ConfigurationError, param_registry, params_of
from setpoint.apiserver.admission.dynamic.policy_source import Binding, Hook, PolicySource
from setpoint.apiserver.admission.dynamic.review_request import namespace_of
from setpoint.apiserver.admission.dynamic.served import Served
from setpoint.apiserver.admission.plugin import Attributes, Obj, Plugin, Reader
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.registry import Registry
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, NotFound

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.expressions import Subject
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests
    from setpoint.apiserver.admission.dynamic.validating_evaluation import Denial, ValidatingEvaluator, Verdict

_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
_FAILURES = "validation.policy.admission.k8s.io/validation_failure"
_MOST_FAILURES = 50


class _Refusal(NamedTuple):
    policy: str
    binding: str
    message: str
    reason: str = ""

    @property
    def text(self) -> str:
        by = f" with binding '{self.binding}'" if self.binding else ""
        return f"ValidatingAdmissionPolicy '{self.policy}'{by} denied request: {self.message}"


class ValidatingAdmissionPolicy(Plugin):
    name = "ValidatingAdmissionPolicy"

    def __init__(
        self, reader: Reader, served: Served, authorizer: AuthorizerChain, static: StaticManifests | None = None
    ) -> None:
        self._source: PolicySource[ValidatingEvaluator] = PolicySource(
            "validatingadmissionpolicies", reader, served, _compile, static
        )
        self._matcher = Matcher(reader, served)
        self._served = served
        self._authorizer = authorizer

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return self._source.sees(resource)

    async def validate(self, attrs: Attributes) -> None:
        hooks = self._source.for_request(attrs)
        if hooks:
            await _Judgement(attrs, self._matcher, self._served, self._authorizer).over(hooks)


def _compile(policy: Obj) -> ValidatingEvaluator:
    # The expression language is loaded for the first policy that a write meets: many clusters have none.
    from setpoint.apiserver.admission.dynamic.validating_evaluation import ValidatingEvaluator

    return ValidatingEvaluator(policy)


class _Judgement:
    """Of one write."""

    def __init__(self, attrs: Attributes, matcher: Matcher, served: Served, authorizer: AuthorizerChain) -> None:
        self._attrs = attrs
        self._matcher = matcher
        self._served = served
        self._authorizer = authorizer
        self._refusals: list[_Refusal] = []
        self._audited: list[Obj] = []
        self._subjects: dict[tuple[str, str], Subject] = {}

    async def over(self, hooks: tuple[Hook[ValidatingEvaluator], ...]) -> None:
        for hook in hooks:
            await self._by_policy(hook)
        if self._audited:
            self._attrs.audit[_FAILURES] = orjson.dumps(self._audited[:_MOST_FAILURES]).decode()
        if self._refusals:
            raise self._error(self._refusals[0])

    def _error(self, refusal: _Refusal) -> ApiError:
        error = self._attrs.forbidden(refusal.text)
        error.reason = refusal.reason or "Invalid"
        error.code = _CODES.get(error.reason, 422)
        error.details = {**(error.details or {}), "causes": [{"message": refusal.text}]}
        return error

    def _misconfigured(self, hook: Hook[ValidatingEvaluator], why: str, binding: str = "") -> None:
        if not hook.ignores_failure:
            what = "binding" if binding else "policy"
            self._refusals.append(_Refusal(hook.name, binding, f"failed to configure {what}: {why}"))

    async def _by_policy(self, hook: Hook[ValidatingEvaluator]) -> None:
        try:
            matched = self._matcher.match(hook.criteria, self._attrs)
            if matched is None:
                return
            params = param_registry(hook.policy, self._served)
        except (NotFound, ConfigurationError) as error:
            self._misconfigured(hook, str(error))
            return
        annotations: dict[str, list[str]] = {}
        for binding in hook.bindings:
            await self._by_binding(hook, binding, matched, params, annotations)
        for key, values in annotations.items():
            self._attrs.audit[f"{hook.name}/{key}"] = ", ".join(values)

    async def _by_binding(
        self,
        hook: Hook[ValidatingEvaluator],
        binding: Binding,
        matched: Resource,
        registry: Registry | None,
        annotations: dict[str, list[str]],
    ) -> None:
        attrs = self._attrs
        try:
            if binding.criteria is not None and self._matcher.match(binding.criteria, attrs) is None:
                return
            params = await params_of(registry, binding.obj, namespace_of(attrs))
        except (NotFound, ConfigurationError) as error:
            self._misconfigured(hook, str(error), binding.name)
            return
        namespace = None
        if namespace_of(attrs) and not attrs.is_("", "namespaces", attrs.subresource):
            namespace = self._matcher.namespace(namespace_of(attrs))
        for param in params:
            subject = await self._subject(matched)
            judge = partial(hook.evaluator.judge, subject, attrs.resource, param, namespace)
            verdict = await subject.answered(judge)
            self._take(hook, binding, verdict, annotations)

    async def _subject(self, matched: Resource) -> Subject:
        from setpoint.apiserver.admission.dynamic.expressions import Subject

        key = (matched.group, matched.version)
        if key not in self._subjects:
            attrs = self._attrs
            obj = await self._served.object_of(attrs, attrs.obj, matched)
            old = await self._served.object_of(attrs, attrs.old, matched)
            self._subjects[key] = Subject(attrs, matched, obj, old, self._authorizer)
        return self._subjects[key]

    def _take(
        self,
        hook: Hook[ValidatingEvaluator],
        binding: Binding,
        verdict: Verdict,
        annotations: dict[str, list[str]],
    ) -> None:
        for denial in verdict.denials:
            for action in binding.obj["spec"].get("validationActions") or ():
                self._act(action, hook.name, binding, denial)
        for key, value in verdict.annotations:
            values = annotations.setdefault(key, [])
            if value not in values:
                values.append(value)
        self._refusals += [_Refusal(hook.name, binding.name, error) for error in verdict.annotation_errors]

    def _act(self, action: str, policy: str, binding: Binding, denial: Denial) -> None:
        if action == "Deny":
            self._refusals.append(_Refusal(policy, binding.name, denial.message, denial.reason))
        elif action == "Warn":
            text = f"Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding.name}'"
            text += f": {denial.message}"
            if text not in self._attrs.warnings:
                self._attrs.warnings.append(text)
        elif action == "Audit":
            self._audited.append(
                {
                    "message": denial.message,
                    "policy": policy,
                    "binding": binding.name,
                    "expressionIndex": denial.at,
                    "validationActions": binding.obj["spec"]["validationActions"],
                }
            )
