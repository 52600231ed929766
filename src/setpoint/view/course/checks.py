"""Checks of lessons: expressions in CEL over the facts about a learner's cluster.

Besides the functions of Kubernetes' CEL there are

    objects(KIND), objects(KIND, NAMESPACE)    all objects of a kind: objects("Pod"), objects("PostgresCluster")
    object("Deployment/web")                   one object, in the namespace default; "Pod/shop/web-1" names another one;
                                               an empty map if there is none
    present("Deployment/web")                  whether it exists
    ready(o), condition(o, TYPE)               whether its condition Ready is True; the status of a condition, or ""
    label(o, KEY), owner(o)                    a label, or ""; the controlling owner as "ReplicaSet/web-1", or ""
    restarts(p), reason(p)                     the restarts of a Pod's containers; why one waits, or "": ErrImagePull
    file(NAME)                                 the text of a file, or ""

and the variables `history` (`facts.History`), `typed`, `answers` (whether the answer to a question is right) and `now`.
The first argument of `objects`, `object`, `present` and `file` is a literal, so that it is known what a check reads. An
error, such as a missing key, means that the check is not met yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from setpoint.meta.cel import (
    BOOL,
    DYN,
    STRING,
    TIMESTAMP,
    CelError,
    CelProblem,
    Environment,
    Library,
    Program,
    Timestamp,
    kubernetes_environment,
    list_of,
    map_of,
)
from setpoint.meta.cel.syntax import Call, Literal, walk
from setpoint.meta.conditions import condition_of
from setpoint.meta.objects import ObjView
from setpoint.meta.times import unix_milliseconds
from setpoint.view.course.facts import Facts
from setpoint.view.course.problems import ProblemList

COST_LIMIT = 200_000
"""The cost of all expressions of one check: some tens of milliseconds."""
MAX_EXPRESSION_LENGTH = 4_000
_PLACEHOLDER = re.compile(r"\{([a-z][a-zA-Z0-9_]{0,40})\}")
_ASIDE = re.compile(r" \([^(){}]{0,60}\{[^()]{1,80}\)")
"""A remark in parentheses that has a value."""
NAME = re.compile(r"[a-z][a-zA-Z0-9_]{0,40}")
_REF = re.compile(r"[A-Z][A-Za-z0-9]{0,62}(?:\.[a-z0-9.-]{1,200})?/(?:[a-z0-9.-]{1,63}/)?[a-zA-Z0-9.:_-]{1,253}")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}(?:\.[a-z0-9.-]{1,200})?")
_KNOWN = ("history", "typed", "answers", "now")
_MAX_TEXT = 200


class Reference(NamedTuple):
    """An object that a check names."""

    kind: str
    namespace: str
    """The namespace; `default` if the text has none. It is ignored if the kind has none."""
    name: str

    @classmethod
    def of(cls, text: str) -> Reference:
        kind, _, rest = text.partition("/")
        namespace, slash, name = rest.rpartition("/")
        return cls(kind, namespace if slash else "default", name)


@dataclass(frozen=True, slots=True)
class Needs:
    """The facts that a check reads."""

    kinds: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    """The variables that it reads, of `history`, `typed`, `answers` and `now`."""

    def __or__(self, other: Needs) -> Needs:
        return Needs(self.kinds | other.kinds, self.files | other.files, self.variables | other.variables)

    def __bool__(self) -> bool:
        return bool(self.kinds or self.files or self.variables)


class Expression(NamedTuple):
    """A compiled expression with its line in the file."""

    program: Program
    line: int
    needs: Needs


class Otherwise(NamedTuple):
    """A message for a wrong state."""

    when: Expression
    message: str


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that a learner is to bring about."""

    id: str
    line: int
    message: str
    """The sentence that is shown, with values in braces: `Three Pods are ready (now: {count})`."""
    let: Mapping[str, Expression]
    when: Expression
    otherwise: tuple[Otherwise, ...] = ()
    hints: tuple[list[dict[str, Any]], ...] = ()
    """Hints in steps, each as Markdown blocks."""
    hold: bool = False
    """Whether it must stay true; other checks stay met once they were."""
    needs: Needs = field(default_factory=Needs)

    @property
    def title(self) -> str:
        """The sentence without values, for a check that was not evaluated yet."""
        return _PLACEHOLDER.sub("...", _ASIDE.sub("", self.message))


class Verdict(NamedTuple):
    """The result of a check."""

    ok: bool
    message: str
    """The sentence of the check with the current values."""
    note: str = ""
    """The mistake in the present state; empty if there is nothing to add."""
    error: str = ""
    """Why the expression could not be evaluated; empty if it could. It is for the authors of lessons."""


# -- compiling ---------------------------------------------------------------------------------------------------------


def compile_expression(
    text: Any, line: int, problems: ProblemList, names: Sequence[str] = (), *, result: str = "bool"
) -> Expression | None:
    """Return a compiled expression, or None after a problem was added. `names` are the variables of `let`."""
    if not isinstance(text, str) or not text.strip():
        problems.add(line, "an expression in CEL is expected")
        return None
    if len(text) > MAX_EXPRESSION_LENGTH:
        problems.add(line, f"an expression has {MAX_EXPRESSION_LENGTH:,} characters at most")
        return None
    environment = _environment()
    if names:
        environment = environment.extended(dict.fromkeys(names, DYN))
    try:
        program = environment.compile(text)
    except CelProblem as error:
        problems.add(line, f"CEL: {error}")
        return None
    except CelError as error:
        problems.add(line, f"CEL: {error.message}")
        return None
    if result == "bool" and program.result not in (BOOL, DYN):
        problems.add(line, "the expression must be true or false")
        return None
    return Expression(program, line, _needs(program, line, problems))


def _needs(program: Program, line: int, problems: ProblemList) -> Needs:
    kinds, files = set(), set()
    for each in walk(program.tree):
        if not isinstance(each, Call) or each.target is not None or each.function not in _LITERAL:
            continue
        first = each.arguments[0]
        value = first.value if isinstance(first, Literal) else None
        if not isinstance(value, str):
            problems.add(line, f"the first argument of {each.function} must be a text")
        elif each.function == "file":
            files.add(value)
        elif not (_KIND if each.function == "objects" else _REF).fullmatch(value):
            expected = "a kind such as Pod" if each.function == "objects" else "KIND/NAME or KIND/NAMESPACE/NAME"
            problems.add(line, f"{each.function}({value[:80]!r}): expected {expected}")
        else:
            kinds.add(value.partition("/")[0])
    return Needs(frozenset(kinds), frozenset(files), program.variables & frozenset(_KNOWN))


def placeholders(message: str) -> list[str]:
    """Return the names in braces of a message."""
    return _PLACEHOLDER.findall(message)


# -- evaluating --------------------------------------------------------------------------------------------------------


def evaluate(check: Check, facts: Facts) -> Verdict:
    """Return whether a check is met. It never raises, and costs at most `COST_LIMIT`."""
    left = [COST_LIMIT]
    with _facts_as(facts):
        values = _variables(facts)
        for name, expression in check.let.items():
            value, _ = _value(expression, values, left)
            if value is not None:
                values[name] = value
        message = _filled(check.message, values)
        ok, error = _value(check.when, values, left)
        if ok is True:
            return Verdict(True, message)
        for each in check.otherwise:
            if _value(each.when, values, left)[0] is True:
                return Verdict(False, message, _filled(each.message, values), error)
    return Verdict(False, message, "", error)


def is_true(expression: Expression, facts: Facts) -> bool:
    """Return whether an expression without variables of `let` is true."""
    with _facts_as(facts):
        return _value(expression, _variables(facts), [COST_LIMIT])[0] is True


def _value(expression: Expression, values: Mapping[str, Any], left: list[int]) -> tuple[Any, str]:
    """Return the value of an expression, or None and why there is none; `left` is the cost that is left."""
    outcome = expression.program.evaluate(values, max(left[0], 0))
    left[0] -= outcome.cost
    if outcome.error is not None:
        return None, outcome.error
    return outcome.value, ""


def _variables(facts: Facts) -> dict[str, Any]:
    return {
        "history": list(facts.history),
        "typed": list(facts.typed),
        "answers": dict(facts.answers),
        "now": Timestamp(unix_milliseconds(facts.now) * 1_000_000),
    }


def _filled(message: str, values: Mapping[str, Any]) -> str:
    def shown(match: re.Match[str]) -> str:
        if match[1] not in values:
            return "..."
        value = values[match[1]]
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            return ", ".join(str(each) for each in value[:10] if isinstance(each, (str, int, float)))[:_MAX_TEXT]
        return str(value)[:_MAX_TEXT] if isinstance(value, (str, int, float)) else "..."

    return _PLACEHOLDER.sub(shown, message)


# -- functions ---------------------------------------------------------------------------------------------------------

_LITERAL = ("objects", "object", "present", "file")
_current: ContextVar[Facts] = ContextVar("facts of the check that is evaluated")


@contextmanager
def _facts_as(facts: Facts) -> Iterator[None]:
    """Let the functions read these facts, inside a block."""
    token = _current.set(facts)
    try:
        yield
    finally:
        _current.reset(token)


def _all(kind: str) -> list[ObjView]:
    return list(_current.get().objects.get(kind, ()))


def _of_namespace(kind: str, namespace: str) -> list[ObjView]:
    return [each for each in _all(kind) if each["metadata"].get("namespace") == namespace]


def _one(text: str) -> ObjView:
    ref = Reference.of(text)
    for each in _current.get().objects.get(ref.kind, ()):
        meta = each["metadata"]
        if meta["name"] == ref.name and meta.get("namespace", ref.namespace) == ref.namespace:
            return each
    return {}


def _present(text: str) -> bool:
    return bool(_one(text))


def _file(name: str) -> str:
    return _current.get().files.get(name, "")


def _mapping(value: Any, *path: str) -> dict[str, Any]:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _condition(obj: Any, kind: str) -> str:
    found = condition_of(_mapping(obj), kind)
    return str(found.get("status", "")) if found is not None else ""


def _ready(obj: Any) -> bool:
    deleted = "deletionTimestamp" in _mapping(obj, "metadata")
    return not deleted and _condition(obj, "Ready") == "True"


def _label(obj: Any, key: str) -> str:
    return str(_mapping(obj, "metadata", "labels").get(key, ""))


def _owner(obj: Any) -> str:
    for each in _mapping(obj, "metadata").get("ownerReferences") or ():
        if each.get("controller"):
            return f"{each.get('kind', '')}/{each.get('name', '')}"
    return ""


def _containers(pod: Any) -> list[dict[str, Any]]:
    status = _mapping(pod, "status")
    found = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return [each for each in found if isinstance(each, dict)]


def _restarts(pod: Any) -> int:
    return sum(int(each.get("restartCount") or 0) for each in _containers(pod))


def _reason(pod: Any) -> str:
    for each in _containers(pod):
        if found := _mapping(each, "state", "waiting").get("reason"):
            return str(found)
    return ""


_FUNCTIONS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("lesson_objects", "objects(string) -> list(dyn)", _all),
    ("lesson_objects_namespace", "objects(string, string) -> list(dyn)", _of_namespace),
    ("lesson_object", "object(string) -> dyn", _one),
    ("lesson_present", "present(string) -> bool", _present),
    ("lesson_file", "file(string) -> string", _file),
    ("lesson_ready", "ready(dyn) -> bool", _ready),
    ("lesson_condition", "condition(dyn, string) -> string", _condition),
    ("lesson_label", "label(dyn, string) -> string", _label),
    ("lesson_owner", "owner(dyn) -> string", _owner),
    ("lesson_restarts", "restarts(dyn) -> int", _restarts),
    ("lesson_reason", "reason(dyn) -> string", _reason),
)


@cache
def _environment() -> Environment:
    variables = {
        "history": list_of(map_of(STRING, DYN)),
        "typed": list_of(STRING),
        "answers": map_of(STRING, BOOL),
        "now": TIMESTAMP,
    }
    return kubernetes_environment().extended(variables, libraries=(Library("lesson", _FUNCTIONS),))
