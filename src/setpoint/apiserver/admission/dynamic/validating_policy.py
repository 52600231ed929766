"""ValidatingAdmissionPolicy: a write must satisfy the policies that are bound to it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson

from setpoint.apiserver.admission.dynamic.admission_review import namespace_of
from setpoint.apiserver.admission.dynamic.matching import Matcher
from setpoint.apiserver.admission.dynamic.policies import (
    Binding,
    ConfigurationError,
    PolicyHook,
    PolicySource,
    param_registry,
    params_of,
)
from setpoint.apiserver.admission.dynamic.served_resources import ServedResources
from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.registry import Registry
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.evaluation import (
        Denial,
        ValidatingEvaluator,
        ValidationResult,
    )
    from setpoint.apiserver.admission.dynamic.expressions import WriteBindings
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests

_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
_FAILURES = "validation.policy.admission.k8s.io/validation_failure"
_MAX_FAILURES = 50


class _Denied(NamedTuple):
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
        self,
        reader: Reader,
        served: ServedResources,
        authorizer: AuthorizerChain,
        static: StaticManifests | None = None,
    ) -> None:
        self._source: PolicySource[ValidatingEvaluator] = PolicySource(
            "validatingadmissionpolicies", reader, served, _compile, static
        )
        self._matcher = Matcher(reader, served)
        self._served = served
        self._authorizer = authorizer

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return self._source.handles(resource)

    async def validate(self, attrs: Attributes) -> None:
        hooks = self._source.for_request(attrs)
        if hooks:
            await _Validation(attrs, self._matcher, self._served, self._authorizer).run(hooks)


def _compile(policy: Obj) -> ValidatingEvaluator:
    # CEL is loaded for the first policy that a write matches: many clusters have none.
    from setpoint.apiserver.admission.dynamic.evaluation import ValidatingEvaluator

    return ValidatingEvaluator(policy)


class _Validation:
    """The validation of one write by all bound policies."""

    def __init__(
        self, attrs: Attributes, matcher: Matcher, served: ServedResources, authorizer: AuthorizerChain
    ) -> None:
        self._attrs = attrs
        self._matcher = matcher
        self._served = served
        self._authorizer = authorizer
        self._denials: list[_Denied] = []
        self._audited: list[Obj] = []
        self._writes: dict[tuple[str, str], WriteBindings] = {}

    async def run(self, hooks: tuple[PolicyHook[ValidatingEvaluator], ...]) -> None:
        for hook in hooks:
            await self._evaluate_policy(hook)
        if self._audited:
            self._attrs.audit[_FAILURES] = orjson.dumps(self._audited[:_MAX_FAILURES]).decode()
        if self._denials:
            raise self._error(self._denials[0])

    def _error(self, denied: _Denied) -> ApiError:
        error = self._attrs.forbidden(denied.text)
        error.reason = denied.reason or "Invalid"
        error.code = _CODES.get(error.reason, 422)
        error.details = {**(error.details or {}), "causes": [{"message": denied.text}]}
        return error

    def _misconfigured(self, hook: PolicyHook[ValidatingEvaluator], why: str, binding: str = "") -> None:
        if not hook.ignores_failure:
            what = "binding" if binding else "policy"
            self._denials.append(_Denied(hook.name, binding, f"failed to configure {what}: {why}"))

    async def _evaluate_policy(self, hook: PolicyHook[ValidatingEvaluator]) -> None:
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
            await self._evaluate_binding(hook, binding, matched, params, annotations)
        for key, values in annotations.items():
            self._attrs.audit[f"{hook.name}/{key}"] = ", ".join(values)

    async def _evaluate_binding(
        self,
        hook: PolicyHook[ValidatingEvaluator],
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
            write = await self._write_bindings(matched)
            validate = partial(hook.evaluator.validate, write, attrs.resource, param, namespace)
            result = await write.resolve(validate)
            self._collect(hook, binding, result, annotations)

    async def _write_bindings(self, matched: Resource) -> WriteBindings:
        from setpoint.apiserver.admission.dynamic.expressions import WriteBindings

        key = (matched.group, matched.version)
        if key not in self._writes:
            attrs = self._attrs
            obj = await self._served.object_of(attrs, attrs.obj, matched)
            old = await self._served.object_of(attrs, attrs.old, matched)
            self._writes[key] = WriteBindings(attrs, matched, obj, old, self._authorizer)
        return self._writes[key]

    def _collect(
        self,
        hook: PolicyHook[ValidatingEvaluator],
        binding: Binding,
        result: ValidationResult,
        annotations: dict[str, list[str]],
    ) -> None:
        for denial in result.denials:
            for action in binding.obj["spec"].get("validationActions") or ():
                self._act(action, hook.name, binding, denial)
        for key, value in result.annotations:
            values = annotations.setdefault(key, [])
            if value not in values:
                values.append(value)
        self._denials += [_Denied(hook.name, binding.name, error) for error in result.annotation_errors]

    def _act(self, action: str, policy: str, binding: Binding, denial: Denial) -> None:
        if action == "Deny":
            self._denials.append(_Denied(policy, binding.name, denial.message, denial.reason))
        elif action == "Warn":
            text = f"Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding.name}'"
            text += f": {denial.message}"
            self._attrs.warn(text)
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
