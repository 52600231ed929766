"""MutatingAdmissionPolicy: policies that are bound to a write change its object, one after the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from setpoint.apiserver.admission.dynamic.changes import ChangeProblem, replace_object, type_shown
from setpoint.apiserver.admission.dynamic.matching import Matcher
from setpoint.apiserver.admission.dynamic.params import ConfigurationError, param_registry, params_of
from setpoint.apiserver.admission.dynamic.policy_source import Binding, Hook, PolicySource
from setpoint.apiserver.admission.dynamic.reinvocation import Round, end_round, round_of
from setpoint.apiserver.admission.dynamic.review_request import namespace_of
from setpoint.apiserver.admission.dynamic.served import Served
from setpoint.apiserver.admission.plugin import Attributes, Obj, Plugin, Reader, Reinvocation
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, InternalError, NotFound
from setpoint.meta.goformat import quote

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.mutating_evaluation import MutatingEvaluator
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests


class _Failure(NamedTuple):
    policy: str
    binding: str
    message: str
    reason: str = ""

    @property
    def text(self) -> str:
        if self.binding:
            return f"policy '{self.policy}' with binding '{self.binding}' denied request: {self.message}"
        return f"policy {quote(self.policy)} denied request: {self.message}"


class _Invocation(NamedTuple):
    hook: Hook[MutatingEvaluator]
    binding: Binding
    matched: Resource
    params: Obj | None

    @property
    def id(self) -> str:
        meta = (self.params or {}).get("metadata") or {}
        names = (self.hook.name, self.binding.name, meta.get("namespace", ""), meta.get("name", ""))
        return "/".join(names)


class MutatingAdmissionPolicy(Plugin):
    name = "MutatingAdmissionPolicy"

    def __init__(
        self, reader: Reader, served: Served, authorizer: AuthorizerChain, static: StaticManifests | None = None
    ) -> None:
        self._source: PolicySource[MutatingEvaluator] = PolicySource(
            "mutatingadmissionpolicies", reader, served, _compile, static
        )
        self._matcher = Matcher(reader, served)
        self._served = served
        self._authorizer = authorizer

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation != "DELETE" and self._source.sees(resource)

    async def mutate(self, attrs: Attributes) -> None:
        hooks = self._source.for_request(attrs)
        if hooks:
            await _Mutation(attrs, self._matcher, self._served, self._authorizer).by(hooks, self.name)


def _compile(policy: Obj) -> MutatingEvaluator:
    # The expression language is loaded for the first policy that a write meets: many clusters have none.
    from setpoint.apiserver.admission.dynamic.mutating_evaluation import MutatingEvaluator

    return MutatingEvaluator(policy)


class _Mutation:
    """Of one write."""

    def __init__(self, attrs: Attributes, matcher: Matcher, served: Served, authorizer: AuthorizerChain) -> None:
        self._attrs = attrs
        self._matcher = matcher
        self._served = served
        self._authorizer = authorizer
        self._failures: list[_Failure] = []
        self._namespace: Obj | None = None
        self._touched = False

    async def by(self, hooks: tuple[Hook[MutatingEvaluator], ...], plugin: str) -> None:
        invocations = [one for hook in hooks for one in await self._invocations(hook)]
        if invocations:
            attrs = self._attrs
            if namespace_of(attrs) and not attrs.is_("", "namespaces", attrs.subresource):
                self._namespace = self._matcher.namespace(namespace_of(attrs))
            again, state = round_of(attrs, plugin)
            for invocation in invocations:
                await self._invoke(invocation, again, state)
            if self._touched:
                # Also the policy that changed the object last sees it again, if it wants.
                state.changed()
            end_round(attrs, state)
        if self._failures:
            raise self._error()

    def _error(self) -> ApiError:
        first = self._failures[0]
        error = self._attrs.forbidden("")
        error.message = first.text
        error.reason = first.reason or error.reason
        error.details = {
            **(error.details or {}), "causes": [{"message": failure.text} for failure in self._failures],
        }  # fmt: skip
        return error

    def _fail(self, hook: Hook[MutatingEvaluator], binding: str, message: str, reason: str = "") -> None:
        if not hook.ignores_failure:
            self._failures.append(_Failure(hook.name, binding, message, reason))

    async def _invocations(self, hook: Hook[MutatingEvaluator]) -> list[_Invocation]:
        attrs, found = self._attrs, []
        try:
            matched = self._matcher.match(hook.criteria, attrs)
            if matched is None:
                return []
            registry = param_registry(hook.policy, self._served)
        except (NotFound, ConfigurationError) as error:
            self._fail(hook, "", f"failed to configure policy: {error}")
            return []
        for binding in hook.bindings:
            try:
                if binding.criteria is not None and self._matcher.match(binding.criteria, attrs) is None:
                    continue
                params = await params_of(registry, binding.obj, namespace_of(attrs))
            except (NotFound, ConfigurationError) as error:
                self._fail(hook, binding.name, f"failed to configure binding: {error}")
                continue
            found += [_Invocation(hook, binding, matched, one) for one in params]
        return found

    async def _invoke(self, invocation: _Invocation, again: Reinvocation, state: Round) -> None:
        from setpoint.apiserver.admission.dynamic.expressions import ConditionError, Subject
        from setpoint.apiserver.admission.dynamic.mutating_evaluation import MutationError

        attrs, (hook, binding, matched, params) = self._attrs, invocation
        obj = await self._served.object_of(attrs, attrs.obj, matched)
        old = await self._served.object_of(attrs, attrs.old, matched)
        subject = Subject(attrs, matched, obj, old, self._authorizer)
        try:
            if not await subject.answered(lambda: hook.evaluator.applies(subject, attrs.resource, params)):
                return
        except ConditionError as error:
            self._fail(hook, binding.name, str(error), "Invalid")
            return
        if (again.running and invocation.id not in state.again) or obj is None:
            return
        changed = False
        for at in range(len(hook.evaluator.mutations)):
            try:
                bindings = subject.with_params(params, self._namespace)
                mutated = partial(hook.evaluator.mutated, at, obj, type_shown(attrs, matched), bindings)
                new = await subject.answered(mutated)
                changed |= await replace_object(attrs, new, matched, self._served, strict=True)
            except MutationError as error:
                self._fail(hook, binding.name, str(error), "Invalid")
                continue
            except ChangeProblem as error:
                raise InternalError.of(str(error)) from None
            again.wanted = self._touched = True
            shown = await self._served.object_of(attrs, attrs.obj, matched)
            assert shown is not None
            obj = shown
            subject.show(obj)
        if changed:
            state.changed()
        if hook.policy["spec"].get("reinvocationPolicy") == "IfNeeded":
            state.called.add(invocation.id)
