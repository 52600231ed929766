"""Running the expressions of a policy or a webhook over one write, within their budget."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from setpoint.apiserver.admission.dynamic.review_request import namespace_of, request_of
from setpoint.apiserver.admission.plugin import Attributes, Obj
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain, Decision, Problem, Ruling
from setpoint.kinds.catalog import Resource
from setpoint.kinds.expression_checks import admission_program
from setpoint.kinds.expressions import Purpose
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.cel import CelError, Program
from setpoint.meta.cel.lazy import LazyMap
from setpoint.meta.cel.libraries import authorizer as cel
from setpoint.meta.goformat import aggregate, quote
from setpoint.meta.selectors import Requirement, Selector, SelectorError, parse_fields, parse_labels

BUDGET = 10_000_000
"""Of all expressions of one kind (validations, messages, ...) of a policy together."""
CONDITION_BUDGET = 2_500_000
"""Of the match conditions of a policy or webhook."""
_SPENT = "validation failed due to running out of cost budget, no further validation rules will be run"
_NAMESPACE_META = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
)  # fmt: skip


class OutOfBudget(Exception):
    """No expression of this kind is run any more."""

    def __init__(self) -> None:
        super().__init__(_SPENT)


class Expression(NamedTuple):
    text: str
    program: Program | None
    problem: str = ""
    """Why there is no program."""


class Result(NamedTuple):
    """A value, or an error."""

    value: Any
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What expressions of one policy may use, and the variables they share."""

    has_params: bool = False
    variables: tuple[tuple[str, str], ...] | None = None

    def expression(self, text: str, purpose: Purpose, has_authorizer: bool = True) -> Expression:
        found, problem = admission_program(text, purpose, self.has_params, has_authorizer, True, self.variables)
        return Expression(text, found, problem)

    def compiled_variables(self) -> dict[str, Expression]:
        """Each sees those before it."""
        found: dict[str, Expression] = {}
        for at, (name, text) in enumerate(self.variables or ()):
            before = (self.variables or ())[:at]
            program, problem = admission_program(text, Purpose.VARIABLE, self.has_params, True, True, before)
            found[name] = Expression(text, program, problem)
        return found


T = TypeVar("T")


class _Unanswered(BaseException):
    """Who decides is far away: ask there, and evaluate again. Not an Exception: nothing within an expression may take
    it for an error of that expression."""

    def __init__(self, check: cel.Check, ruling: Awaitable[Ruling]) -> None:
        self.check = check
        self.ruling = ruling


class Subject:
    """One write as expressions see it: `object`, `oldObject`, `request`, `namespaceObject`, `authorizer`."""

    def __init__(
        self, attrs: Attributes, matched: Resource, obj: Obj | None, old: Obj | None, authorizer: AuthorizerChain
    ) -> None:
        """`obj` and `old` in the version that matched."""
        self._attrs = attrs
        self._authorizer = authorizer
        self._answers: dict[cel.Check, cel.Decision] = {}
        """What far authorizers said."""
        self.bindings: dict[str, Any] = {"object": obj, "oldObject": old, "request": request_of(attrs, matched)}

    async def answered(self, evaluate: Callable[[], T]) -> T:
        """The outcome of `evaluate`, which is run again whenever a far authorizer had to be asked for it: each of them
        once for each question, and the costs of questions limit their number."""
        while True:
            try:
                return evaluate()
            except _Unanswered as question:
                self._answers[question.check] = _decision(await question.ruling)

    def show(self, obj: Obj) -> None:
        """The object is another one now."""
        self.bindings["object"] = obj

    def with_params(
        self, params: Obj | None, namespace: Obj | None, *, authorizer: bool = True, matched: Resource | None = None
    ) -> dict[str, Any]:
        """`matched`: in the request, if not the one that matched."""
        bindings = {**self.bindings, "params": params, "namespaceObject": _namespace(namespace)}
        if matched is not None:
            bindings["request"] = {**bindings["request"], "resource": request_of(self._attrs, matched)["resource"]}
        if authorizer:
            bindings |= self._authorizers()
        return bindings

    def _authorizers(self) -> dict[str, Any]:
        attrs = self._attrs
        asked = cel.Check(
            is_resource=True,
            group=attrs.resource.group,
            resource=attrs.resource.plural,
            subresource=attrs.subresource,
            namespace=namespace_of(attrs),
            name=attrs.name,
        )
        return {
            "authorizer": cel.AuthorizerValue(self._authorize),
            "authorizer.requestResource": cel.ResourceCheckValue(self._authorize, asked),
        }

    def _authorize(self, check: cel.Check) -> cel.Decision:
        known = self._answers.get(check)
        if known is not None:
            return known
        user = self._attrs.user
        if check.service_account is not None:
            user = _service_account(*check.service_account)
        if check.is_resource:
            access = Access(
                user, check.verb, check.group, "*", check.resource, check.subresource, check.namespace, check.name,
                None, _requirements(parse_fields, check.field_selector),
                _requirements(parse_labels, check.label_selector),
            )  # fmt: skip
        else:
            access = Access(user, check.verb, path=check.path)
        ruling = self._authorizer.authorize(access)
        if not isinstance(ruling, tuple):
            raise _Unanswered(check, ruling)
        return _decision(ruling)


def _requirements(parse: Callable[[str], Selector], text: str) -> tuple[Requirement, ...]:
    """A selector that cannot be read confines nothing."""
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


class Run:
    """Expressions of one kind, one after the other. Variables are computed when first asked for, and once."""

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
        """Raises OutOfBudget."""
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
    """One that is false decides. Raises ConditionError if some could not be evaluated, the others hold, and failures
    are not ignored."""
    if not conditions:
        return True
    run = Run(bindings, variables, CONDITION_BUDGET)
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
    """Whether a match condition holds cannot be said."""
