"""MutatingAdmissionPolicy: bound policies change the object of a write, one after the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from setpoint.apiserver.admission.dynamic.admission_review import namespace_of
from setpoint.apiserver.admission.dynamic.matching import Matcher
from setpoint.apiserver.admission.dynamic.mutation import (
    InvalidMutation,
    InvocationState,
    begin_pass,
    end_pass,
    matched_type,
    replace_object,
)
from setpoint.apiserver.admission.dynamic.policies import (
    Binding,
    ConfigurationError,
    PolicyHook,
    PolicySource,
    param_registry,
    params_of,
)
from setpoint.apiserver.admission.dynamic.served_resources import ServedResources
from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader, Reinvocation
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, InternalError, NotFound
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.evaluation import MutatingEvaluator
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
    hook: PolicyHook[MutatingEvaluator]
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
        self,
        reader: Reader,
        served: ServedResources,
        authorizer: AuthorizerChain,
        static: StaticManifests | None = None,
    ) -> None:
        self._source: PolicySource[MutatingEvaluator] = PolicySource(
            "mutatingadmissionpolicies", reader, served, _compile, static
        )
        self._matcher = Matcher(reader, served)
        self._served = served
        self._authorizer = authorizer

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation != "DELETE" and self._source.handles(resource)

    async def mutate(self, attrs: Attributes) -> None:
        hooks = self._source.for_request(attrs)
        if hooks:
            await _Mutation(attrs, self._matcher, self._served, self._authorizer).apply(hooks, self.name)


def _compile(policy: Obj) -> MutatingEvaluator:
    # CEL is loaded for the first policy that a write matches: many clusters have none.
    from setpoint.apiserver.admission.dynamic.evaluation import MutatingEvaluator

    return MutatingEvaluator(policy)


class _Mutation:
    """The mutation of one write."""

    def __init__(
        self, attrs: Attributes, matcher: Matcher, served: ServedResources, authorizer: AuthorizerChain
    ) -> None:
        self._attrs = attrs
        self._matcher = matcher
        self._served = served
        self._authorizer = authorizer
        self._failures: list[_Failure] = []
        self._namespace: Obj | None = None
        self._mutated = False

    async def apply(self, hooks: tuple[PolicyHook[MutatingEvaluator], ...], plugin: str) -> None:
        invocations = [one for hook in hooks for one in await self._invocations(hook)]
        if invocations:
            attrs = self._attrs
            if namespace_of(attrs) and not attrs.is_("", "namespaces", attrs.subresource):
                self._namespace = self._matcher.namespace(namespace_of(attrs))
            reinvocation, state = begin_pass(attrs, plugin)
            for invocation in invocations:
                await self._invoke(invocation, reinvocation, state)
            if self._mutated:
                # The last policy that changed the object may be reinvoked too.
                state.changed()
            end_pass(attrs, state)
        if self._failures:
            raise self._error()

    def _error(self) -> ApiError:
        first = self._failures[0]
        error = self._attrs.forbidden("")
        error.message = first.text
        error.reason = first.reason or error.reason
        error.details = {
            **(error.details or {}),
            "causes": [{"message": failure.text} for failure in self._failures],
        }
        return error

    def _fail(self, hook: PolicyHook[MutatingEvaluator], binding: str, message: str, reason: str = "") -> None:
        if not hook.ignores_failure:
            self._failures.append(_Failure(hook.name, binding, message, reason))

    async def _invocations(self, hook: PolicyHook[MutatingEvaluator]) -> list[_Invocation]:
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

    async def _invoke(self, invocation: _Invocation, reinvocation: Reinvocation, state: InvocationState) -> None:
        from setpoint.apiserver.admission.dynamic.evaluation import MutationError
        from setpoint.apiserver.admission.dynamic.expressions import ConditionError, WriteBindings

        attrs, (hook, binding, matched, params) = self._attrs, invocation
        obj = await self._served.object_of(attrs, attrs.obj, matched)
        old = await self._served.object_of(attrs, attrs.old, matched)
        write = WriteBindings(attrs, matched, obj, old, self._authorizer)
        try:
            if not await write.resolve(lambda: hook.evaluator.applies(write, attrs.resource, params)):
                return
        except ConditionError as error:
            self._fail(hook, binding.name, str(error), "Invalid")
            return
        if (reinvocation.running and invocation.id not in state.reinvoke) or obj is None:
            return
        changed = False
        for at in range(len(hook.evaluator.mutations)):
            try:
                bindings = write.with_params(params, self._namespace)
                mutated = partial(hook.evaluator.mutated, at, obj, matched_type(attrs, matched), bindings)
                new = await write.resolve(mutated)
                changed |= await replace_object(attrs, new, matched, self._served, strict=True)
            except MutationError as error:
                self._fail(hook, binding.name, str(error), "Invalid")
                continue
            except InvalidMutation as error:
                raise InternalError.of(str(error)) from None
            reinvocation.wanted = self._mutated = True
            shown = await self._served.object_of(attrs, attrs.obj, matched)
            assert shown is not None
            obj = shown
            write.replace_object(obj)
        if changed:
            state.changed()
        if hook.policy["spec"].get("reinvocationPolicy") == "IfNeeded":
            state.called.add(invocation.id)
