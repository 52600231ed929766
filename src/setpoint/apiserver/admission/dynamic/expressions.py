"""Evaluation of the CEL expressions of a policy or webhook for one write, within a cost budget."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from setpoint.apiserver.admission.dynamic.admission_review import namespace_of, request_of
from setpoint.apiserver.admission.plugin import Attributes
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain, Decision, Problem, Ruling
from setpoint.kinds.catalog import Resource
from setpoint.kinds.expression_checks import admission_program
from setpoint.kinds.expressions import Purpose
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.cel import CelError, Program
from setpoint.meta.cel.libraries import authorizer as cel
from setpoint.meta.cel.values import LazyMap
from setpoint.meta.goformat import aggregate, quote
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import Requirement, Selector, SelectorError, parse_fields, parse_labels

BUDGET = 10_000_000
"""Cost budget of all expressions of one kind (validations, messages, ...) of a policy together."""
_CONDITION_BUDGET = 2_500_000
"""Cost budget of the match conditions of a policy or webhook."""
_BUDGET_EXCEEDED = "validation failed due to running out of cost budget, no further validation rules will be run"
_NAMESPACE_META = (
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
    "finalizers",
)


class OutOfBudget(Exception):
    """The budget is exhausted; no further expression of this kind is evaluated."""

    def __init__(self) -> None:
        super().__init__(_BUDGET_EXCEEDED)


class Expression(NamedTuple):
    text: str
    program: Program | None
    problem: str = ""
    """The compilation error; empty if there is a program."""


class Result(NamedTuple):
    """The value of an expression, or an error."""

    value: Any
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """The variables that the expressions of one policy may use."""

    has_params: bool = False
    """Whether the policy has parameters."""
    variables: tuple[tuple[str, str], ...] | None = None
    """Names and expressions of the policy's variables; None if the expressions may not use variables."""

    def expression(self, text: str, purpose: Purpose, has_authorizer: bool = True) -> Expression:
        found, problem = admission_program(text, purpose, self.has_params, has_authorizer, True, self.variables)
        return Expression(text, found, problem)

    def compiled_variables(self) -> dict[str, Expression]:
        """Compile the variables; each may use those before it."""
        found: dict[str, Expression] = {}
        for at, (name, text) in enumerate(self.variables or ()):
            before = (self.variables or ())[:at]
            program, problem = admission_program(text, Purpose.VARIABLE, self.has_params, True, True, before)
            found[name] = Expression(text, program, problem)
        return found


T = TypeVar("T")


class _PendingDecision(BaseException):
    """An authorizer must be awaited; the expression is evaluated again with its decision.

    It is no Exception, so that CEL does not treat it as an error of the expression.
    """

    def __init__(self, check: cel.Check, ruling: Awaitable[Ruling]) -> None:
        self.check = check
        self.ruling = ruling


class WriteBindings:
    """The variables of expressions for one write: `object`, `oldObject`, `request`, `namespaceObject`, `authorizer`."""

    def __init__(
        self, attrs: Attributes, matched: Resource, obj: Obj | None, old: Obj | None, authorizer: AuthorizerChain
    ) -> None:
        """`obj` and `old` are in the version of `matched`."""
        self._attrs = attrs
        self._authorizer = authorizer
        self._decisions: dict[cel.Check, cel.Decision] = {}
        """Decisions of authorizers that had to be awaited."""
        self.bindings: dict[str, Any] = {"object": obj, "oldObject": old, "request": request_of(attrs, matched)}

    async def resolve(self, evaluate: Callable[[], T]) -> T:
        """Return the result of `evaluate`, which is called again after each decision that had to be awaited. Each check
        is awaited once; the cost budget limits the number of checks."""
        while True:
            try:
                return evaluate()
            except _PendingDecision as question:
                self._decisions[question.check] = _decision(await question.ruling)

    def replace_object(self, obj: Obj) -> None:
        """Bind `object` to the changed object."""
        self.bindings["object"] = obj

    def with_params(
        self, params: Obj | None, namespace: Obj | None, *, authorizer: bool = True, matched: Resource | None = None
    ) -> dict[str, Any]:
        """Return the bindings with parameters and namespace; `matched` replaces the resource in `request`."""
        bindings = {**self.bindings, "params": params, "namespaceObject": _namespace(namespace)}
        if matched is not None:
            bindings["request"] = {**bindings["request"], "resource": request_of(self._attrs, matched)["resource"]}
        if authorizer:
            bindings |= self._authorizers()
        return bindings

    def _authorizers(self) -> dict[str, Any]:
        attrs = self._attrs
        request_check = cel.Check(
            is_resource=True,
            group=attrs.resource.group,
            resource=attrs.resource.plural,
            subresource=attrs.subresource,
            namespace=namespace_of(attrs),
            name=attrs.name,
        )
        return {
            "authorizer": cel.AuthorizerValue(self._authorize),
            "authorizer.requestResource": cel.ResourceCheckValue(self._authorize, request_check),
        }

    def _authorize(self, check: cel.Check) -> cel.Decision:
        decided = self._decisions.get(check)
        if decided is not None:
            return decided
        user = self._attrs.user
        if check.service_account is not None:
            user = _service_account(*check.service_account)
        if check.is_resource:
            access = Access(
                user,
                check.verb,
                check.group,
                "*",
                check.resource,
                check.subresource,
                check.namespace,
                check.name,
                None,
                _requirements(parse_fields, check.field_selector),
                _requirements(parse_labels, check.label_selector),
            )
        else:
            access = Access(user, check.verb, path=check.path)
        ruling = self._authorizer.authorize(access)
        if not isinstance(ruling, tuple):
            raise _PendingDecision(check, ruling)
        return _decision(ruling)


def _requirements(parse: Callable[[str], Selector], text: str) -> tuple[Requirement, ...]:
    """Parse a selector; an invalid one has no requirements."""
    try:
        return parse(text).requirements
    except SelectorError:
        return ()


def _decision(ruling: Ruling) -> cel.Decision:
    decision, reason = ruling
    if isinstance(reason, Problem):
        return cel.Decision(decision is Decision.ALLOW, reason.reason, str(reason))
    return cel.Decision(decision is Decision.ALLOW, reason)


def _service_account(namespace: str, name: str) -> UserInfo:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return UserInfo(f"system:serviceaccount:{namespace}:{name}", "", groups)


def _namespace(namespace: Obj | None) -> Obj | None:
    if namespace is None:
        return None
    meta = namespace["metadata"]
    shown: Obj = {"metadata": {name: meta[name] for name in _NAMESPACE_META if name in meta}}
    return shown | {name: namespace.get(name) or {} for name in ("spec", "status")}


class ExpressionRun:
    """Evaluates expressions of one kind in order; variables are computed at their first use."""

    def __init__(self, bindings: Mapping[str, Any], variables: Mapping[str, Expression] | None, budget: int) -> None:
        self._bindings = dict(bindings)
        self.budget = budget
        self._spent_on_variables = 0
        if variables is not None:
            compute = {name: self._variable(name, expression) for name, expression in variables.items()}
            self._bindings["variables"] = LazyMap(compute)

    def _variable(self, name: str, expression: Expression) -> Callable[[], Any]:
        def compute() -> Any:
            if expression.program is None:
                raise CelError(f"composited variable {quote(name)} fails to compile: {expression.problem}")
            outcome = expression.program.evaluate(self._bindings)
            self._spent_on_variables += outcome.cost
            if outcome.error is not None:
                raise CelError(f"composited variable {quote(name)} fails to evaluate: {outcome.error}")
            return outcome.value

        return compute

    def evaluate(self, expression: Expression) -> Result:
        """Evaluate an expression and charge its cost. Raises OutOfBudget."""
        if expression.program is None:
            return Result(None, f"compilation error: {expression.problem}")
        outcome = expression.program.evaluate(self._bindings)
        for cost in (self._spent_on_variables, outcome.cost):
            if cost > self.budget:
                raise OutOfBudget
            self.budget -= cost
        self._spent_on_variables = 0
        if outcome.error is not None:
            return Result(None, f"expression '{expression.text}' resulted in error: {outcome.error}")
        return Result(outcome.value)


def conditions_hold(
    conditions: Sequence[Expression],
    bindings: Mapping[str, Any],
    variables: Mapping[str, Expression] | None,
    ignore_failure: bool,
) -> bool:
    """Return whether all conditions hold; a false one decides. Raises ConditionError if a condition failed, none is
    false, and failures are not ignored."""
    if not conditions:
        return True
    run = ExpressionRun(bindings, variables, _CONDITION_BUDGET)
    errors: list[str] = []
    try:
        results = [run.evaluate(condition) for condition in conditions]
    except OutOfBudget as error:
        if ignore_failure:
            return False
        raise ConditionError(str(error)) from None
    for result in results:
        if result.error is not None:
            errors.append(result.error)
        elif result.value is False:
            return False
    if not errors:
        return True
    if ignore_failure:
        return False
    raise ConditionError(aggregate(errors))


class ConditionError(Exception):
    """A match condition could not be evaluated."""
