"""Generators with few options: namespace, serviceaccount, quota, priorityclass, poddisruptionbudget."""

from __future__ import annotations

import re
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata
from setpoint.meta.quantity import QuantityError, canonical
from setpoint.meta.selectors import SelectorError, parse_labels

_AMOUNT = re.compile(r"[0-9]+%?")
_OPERATORS = {"in": "In", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}


async def run_namespace(invocation: Invocation) -> None:
    making = begin(invocation)
    meta = metadata(invocation, making.name, namespaced=False)
    await making.finish({"kind": "Namespace", "apiVersion": "v1", "metadata": meta, "spec": {}, "status": {}})


async def run_service_account(invocation: Invocation) -> None:
    making = begin(invocation)
    account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": metadata(invocation, making.name)}
    await making.finish(account, "failed to create serviceaccount: ")


async def run_quota(invocation: Invocation) -> None:
    making = begin(invocation)
    spec: dict[str, Any] = {}
    if hard := _hard(invocation.flags.hard):
        spec["hard"] = hard
    if invocation.flags.scopes:
        spec["scopes"] = invocation.flags.scopes.split(",")
        if "" in spec["scopes"]:
            raise Failed('invalid resource quota scope ""')
    quota = {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": metadata(invocation, making.name),
        "spec": spec,
        "status": {},
    }
    await making.finish(quota, "failed to create quota: ")


def _hard(given: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given.split(",") if given else ():
        parts = pair.split("=")
        if len(parts) != 2:
            raise Failed(f"Invalid argument syntax {pair}, expected <resource>=<value>")
        try:
            found[parts[0]] = canonical(parts[1])
        except QuantityError as error:
            raise Failed(str(error)) from None
    return dict(sorted(found.items()))


async def run_priority_class(invocation: Invocation) -> None:
    making = begin(invocation)
    flags = invocation.flags
    made: dict[str, Any] = {
        "kind": "PriorityClass",
        "apiVersion": "scheduling.k8s.io/v1",
        "metadata": metadata(invocation, making.name, namespaced=False),
        "value": flags.value,
    }
    if flags.global_default:
        made["globalDefault"] = True
    if flags.description:
        made["description"] = flags.description
    made["preemptionPolicy"] = flags.preemption_policy
    await making.finish(made, "failed to create priorityclass: ")


NAMESPACE = Command(
    "Create a namespace with the specified name",
    run_namespace,
    FLAGS,
    usage="NAME [--dry-run=server|client|none]",
    aliases=("ns",),
    examples="""
    setpoint create namespace staging
    """,
)
SERVICE_ACCOUNT = Command(
    "Create a service account with the specified name",
    run_service_account,
    FLAGS,
    usage="NAME [--dry-run=server|client|none]",
    aliases=("sa",),
    examples="""
    setpoint create serviceaccount robot
    """,
)
QUOTA = Command(
    "Create a quota with the specified name",
    run_quota,
    (
        *FLAGS,
        text("hard", help="A comma-delimited set of resource=quantity pairs that define a hard limit."),
        text("scopes", help="A comma-delimited set of quota scopes that must all match each object tracked."),
    ),
    usage="NAME [--hard=key1=value1,key2=value2] [--scopes=Scope1,Scope2] [--dry-run=server|client|none]",
    aliases=("resourcequota",),
    examples="""
    setpoint create quota small --hard=cpu=1,memory=1G,pods=2

    setpoint create quota leftovers --hard=pods=100 --scopes=BestEffort
    """,
)
PRIORITY_CLASS = Command(
    "Create a priority class with the specified name",
    run_priority_class,
    (
        *FLAGS,
        number("value", help="The value of this priority class.", bits=32),
        switch("global-default", help="Whether Pods that name no class have this one."),
        text("description", help="When this class should be used, in words."),
        text(
            "preemption-policy",
            default="PreemptLowerPriority",
            help="The policy for preempting pods with lower priority.",
        ),
    ),
    usage="NAME --value=VALUE --global-default=BOOL [--dry-run=server|client|none]",
    aliases=("pc",),
    examples="""
    setpoint create priorityclass urgent --value=1000 --description="what people wait for"
    """,
)


async def run(invocation: Invocation) -> None:
    making = begin(invocation)
    least, most = invocation.flags.min_available, invocation.flags.max_unavailable
    if not making.name:
        raise Failed("name must be specified")
    if not invocation.flags.selector:
        raise Failed("a selector must be specified")
    if not (least or most):
        raise Failed("one of min-available or max-unavailable must be specified")
    if least and most:
        raise Failed("min-available and max-unavailable cannot be both specified")
    for name, given in (("min-available", least), ("max-unavailable", most)):
        if given and not _AMOUNT.fullmatch(given):
            raise Failed(f"invalid format specified for {name}")
    spec: dict[str, Any] = {"minAvailable": _amount(least)} if least else {}
    spec["selector"] = label_selector(invocation.flags.selector)
    if most:
        spec["maxUnavailable"] = _amount(most)
    counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    budget = {
        "kind": "PodDisruptionBudget",
        "apiVersion": "policy/v1",
        "metadata": metadata(invocation, making.name),
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


BUDGET = Command(
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
