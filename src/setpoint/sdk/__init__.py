"""The operator SDK: the control loops of the built-in controllers, with typed objects.

    from dataclasses import dataclass
    from setpoint.sdk import Context, Controller, Kind, Object, Operator, Result

    @dataclass
    class TeapotSpec:
        cups: int = 4

    Teapot = Kind("example.com/v1", "Teapot", spec=TeapotSpec)
    ConfigMap = Kind("v1", "ConfigMap")

    async def brew(ctx: Context, teapot: Object) -> Result | None:
        await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": teapot.name},
                         "data": {"cups": str(teapot.spec.cups)}})
        ctx.condition("Ready", True, "Brewed", f"{teapot.spec.cups} cups")
        return None

    operator = Operator("tea", Controller(Teapot, brew, owns=(ConfigMap,)))

A reconcile function may rely on these guarantees:
- it gets the object from the cache, and never runs concurrently for the same object;
- a change of the object, of its children, or of what the controller watches enqueues another reconcile; changes that
  arrive meanwhile are coalesced into one;
- an exception is logged and the key is requeued with exponential backoff; a Result requeues it after a delay;
- the status that it sets is written once, at the end, and only if it changed.

The other parts, each with its own help:
- what enqueues a reconcile: `Controller`, `Watch`, `Refers`, and the predicates for `when`: `generation_changed`,
  `labels_changed`, `annotations_changed`, `resource_version_changed`, `any_of`, `all_of`;
- webhooks, which are passed to an operator like controllers: `Validate`, `Mutate`, `Convert`;
- metrics: `Counter`, `Gauge`, `Histogram`, with `ctx.count`, `ctx.gauge`, `ctx.observe`;
- an operator's process, against any cluster: `run(operator)`; in a test: `cluster.running(operator)`.
"""

from collections.abc import Sequence
from typing import NoReturn

from setpoint.client import Unreachable
from setpoint.meta.conditions import is_true
from setpoint.meta.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from setpoint.meta.manifests import ManifestProblem, manifests
from setpoint.reconcile import Result
from setpoint.sdk.context import Context, with_condition
from setpoint.sdk.controller import (
    Controller,
    Refers,
    Watch,
    all_of,
    annotations_changed,
    any_of,
    generation_changed,
    labels_changed,
    resource_version_changed,
)
from setpoint.sdk.kind import Column, Kind, Object, Scale
from setpoint.sdk.metrics import Counter, Gauge, Histogram
from setpoint.sdk.models import ModelProblem, compare_quantities, seconds
from setpoint.sdk.operator import Operator
from setpoint.sdk.registration import ReachedAt
from setpoint.sdk.webhooks import Convert, Denied, Mutate, Review, Validate, Version


def run(operator: Operator, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run an operator's process: parse the flags, connect to the cluster of the kubeconfig or the Pod, handle signals,
    logging, leader election, metrics, probes and webhooks. `--help` lists the flags."""
    from setpoint.sdk import process  # not needed in tests

    process.run(operator, arguments)


__all__ = [
    "AlreadyExists",
    "ApiError",
    "Column",
    "Conflict",
    "Context",
    "Controller",
    "Convert",
    "Counter",
    "Denied",
    "Forbidden",
    "Gauge",
    "Histogram",
    "Invalid",
    "Kind",
    "ManifestProblem",
    "ModelProblem",
    "Mutate",
    "NotFound",
    "Object",
    "Operator",
    "ReachedAt",
    "Refers",
    "Result",
    "Review",
    "Scale",
    "Unreachable",
    "Validate",
    "Version",
    "Watch",
    "all_of",
    "annotations_changed",
    "any_of",
    "compare_quantities",
    "generation_changed",
    "is_true",
    "labels_changed",
    "manifests",
    "resource_version_changed",
    "run",
    "seconds",
    "with_condition",
]
