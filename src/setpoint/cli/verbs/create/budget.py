"""`create poddisruptionbudget`."""

from __future__ import annotations

import re
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata
from setpoint.meta.selectors import SelectorError, parse_labels

_AMOUNT = re.compile(r"[0-9]+%?")
_OPERATORS = {"in": "In", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}


async def run(call: Invocation) -> None:
    making = begin(call)
    least, most = call.flags.min_available, call.flags.max_unavailable
    if not making.name:
        raise Failed("name must be specified")
    if not call.flags.selector:
        raise Failed("a selector must be specified")
    if not (least or most):
        raise Failed("one of min-available or max-unavailable must be specified")
    if least and most:
        raise Failed("min-available and max-unavailable cannot be both specified")
    for name, given in (("min-available", least), ("max-unavailable", most)):
        if given and not _AMOUNT.fullmatch(given):
            raise Failed(f"invalid format specified for {name}")
    spec: dict[str, Any] = {"minAvailable": _amount(least)} if least else {}
    spec["selector"] = label_selector(call.flags.selector)
    if most:
        spec["maxUnavailable"] = _amount(most)
    counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    budget = {
        "kind": "PodDisruptionBudget",
        "apiVersion": "policy/v1",
        "metadata": metadata(call, making.name),
        "spec": spec,
        "status": dict.fromkeys(counts, 0),
    }
    await making.finish(budget, "failed to create poddisruptionbudgets: ")


def _amount(given: str) -> int | str:
    return given if given.endswith("%") or len(given) > 18 else int(given)


def label_selector(given: str) -> dict[str, Any]:
    """Return the selector in the form of objects. Raise Failed."""
    try:
        requirements = parse_labels(given).requirements
    except SelectorError as error:
        raise Failed(f'couldn\'t parse the selector string "{given}": {error}') from None
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for one in requirements:
        if one.operator in ("=", "=="):
            labels[one.key] = one.values[0]
        elif one.operator in _OPERATORS:
            expression: dict[str, Any] = {"key": one.key, "operator": _OPERATORS[one.operator]}
            expressions.append(expression | ({"values": sorted(one.values)} if one.values else {}))
        else:
            never = one.operator in ("gt", "lt")
            why = "isn't supported in label selectors" if never else "is not a valid label selector operator"
            raise Failed(f'"{one.operator}" {why}')
    found: dict[str, Any] = {"matchLabels": dict(sorted(labels.items()))} if labels else {}
    return found | ({"matchExpressions": expressions} if expressions else {})


COMMAND = Command(
    "Create a pod disruption budget with the specified name",
    run,
    (
        *FLAGS,
        text("min-available", help="The minimum number or percentage of available pods this budget requires."),
        text("max-unavailable", help="The maximum number or percentage of unavailable pods this budget allows."),
        text("selector", help="Which Pods it is about, as a label selector."),
    ),
    usage="NAME --selector=SELECTOR --min-available=N [--dry-run=server|client|none]",
    aliases=("pdb",),
    examples="""
    setpoint create poddisruptionbudget web --selector=app=web --min-available=50%
    """,
)
