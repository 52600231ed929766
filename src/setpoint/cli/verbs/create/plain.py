"""Generators with few options: namespace, serviceaccount, quota, priorityclass."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata
from setpoint.meta.quantity import QuantityError, canonical


async def run_namespace(call: Invocation) -> None:
    making = begin(call)
    meta = metadata(call, making.name, namespaced=False)
    await making.finish({"kind": "Namespace", "apiVersion": "v1", "metadata": meta, "spec": {}, "status": {}})


async def run_service_account(call: Invocation) -> None:
    making = begin(call)
    account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": metadata(call, making.name)}
    await making.finish(account, "failed to create serviceaccount: ")


async def run_quota(call: Invocation) -> None:
    making = begin(call)
    spec: dict[str, Any] = {}
    if hard := _hard(call.flags.hard):
        spec["hard"] = hard
    if call.flags.scopes:
        spec["scopes"] = call.flags.scopes.split(",")
        if "" in spec["scopes"]:
            raise Failed('invalid resource quota scope ""')
    quota = {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": metadata(call, making.name),
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


async def run_priority_class(call: Invocation) -> None:
    making = begin(call)
    flags = call.flags
    made: dict[str, Any] = {
        "kind": "PriorityClass",
        "apiVersion": "scheduling.k8s.io/v1",
        "metadata": metadata(call, making.name, namespaced=False),
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
        text("preemption-policy", default="PreemptLowerPriority", help="The policy for preempting pods with lower "
             "priority."),
    ),
    usage="NAME --value=VALUE --global-default=BOOL [--dry-run=server|client|none]",
    aliases=("pc",),
    examples="""
    setpoint create priorityclass urgent --value=1000 --description="what people wait for"
    """,
)  # fmt: skip
