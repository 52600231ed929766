"""`autoscale`: a HorizontalPodAutoscaler for a workload."""

from __future__ import annotations

import re

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import number, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, Target, choose, fetch
from setpoint.cli.verbs.create.making import metadata, saved
from setpoint.cli.writing import DRY_RUN, OUTPUT, RECORD, SAVE_CONFIG, DryRun, Results, dry_run, field_manager, recorded
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import QuantityError, canonical

_UNITS = {"cpu": "m", "memory": "Mi"}
_PLAIN = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    dry = dry_run(invocation)
    if flags.max < 1:
        raise Failed(f"--max=MAXPODS is required and must be at least 1, max: {flags.max}")
    if flags.max < flags.min:
        raise Failed(f"--max=MAXPODS must be larger or equal to --min=MINPODS, max: {flags.max}, min: {flags.min}")
    if flags.cpu_percent > 0 and flags.cpu:
        raise Failed("--cpu-percent and --cpu are mutually exclusive")
    metrics = _metrics(invocation)
    results = Results(invocation, dry)
    errors: list[Exception] = []
    chosen = await choose(invocation)
    files = flags.filename or flags.kustomize
    found = chosen.targets if files else await fetch(invocation, chosen, errors)
    for target in found:
        try:
            await _autoscale(invocation, target, metrics, dry, results)
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)
    if not found:
        raise Failed("no objects passed to autoscale")


async def _autoscale(invocation: Invocation, target: Target, metrics: list[Obj], dry: DryRun, results: Results) -> None:
    resource = target.resource
    if not any(part.name == "scale" for part in resource.subresources):
        raise Failed(f"cannot autoscale a {resource.kind}: could not find scale subresource for {resource}")
    spec: Obj = {"scaleTargetRef": {"kind": resource.kind, "name": target.name, "apiVersion": resource.api_version}}
    if invocation.flags.min > 0:
        spec["minReplicas"] = invocation.flags.min
    spec["maxReplicas"] = invocation.flags.max
    if metrics:
        spec["metrics"] = metrics
    scaler = recorded(
        invocation,
        {
            "kind": "HorizontalPodAutoscaler",
            "apiVersion": "autoscaling/v2",
            "metadata": metadata(invocation, invocation.flags.name or target.name),
            "spec": spec,
            "status": {"desiredReplicas": 0, "currentMetrics": None},
        },
    )
    if dry is DryRun.CLIENT:
        results.add(scaler, "created", typed=True)
        return
    if invocation.flags.save_config:
        scaler = saved(scaler)
    made = await invocation.client.create(
        scaler, dry_run=dry is DryRun.SERVER, field_manager=invocation.flags.field_manager
    )
    results.add(made, "autoscaled", typed=True)


def _metrics(invocation: Invocation) -> list[Obj]:
    flags = invocation.flags
    targets = (
        [("cpu", {"type": "Utilization", "averageUtilization": flags.cpu_percent})] if flags.cpu_percent > 0 else []
    )
    targets += [(name, _target(name, given)) for name in _UNITS if (given := getattr(flags, name))]
    return [{"type": "Resource", "resource": {"name": name, "target": target}} for name, target in targets]


def _target(name: str, given: str) -> Obj:
    """Parse a metric target: `70%` of the request, or an amount such as `500m` or `200Mi`; a plain number is in base
    units."""
    given = given.strip()
    if given.endswith("%"):
        if not re.fullmatch(r"\+?[0-9]{1,10}", given[:-1]) or int(given[:-1]) >= 2**31:
            raise Failed(f"invalid percentage value: {given[:-1]}")
        return {"type": "Utilization", "averageUtilization": int(given[:-1])}
    try:
        amount = canonical(f"{float(given):g}{_UNITS[name]}" if _PLAIN.fullmatch(given) else given)
    except QuantityError:
        raise Failed(f"invalid resource {name} value: {given}") from None
    return {"type": "AverageValue", "averageValue": amount}


COMMAND = Command(
    "Auto-scale a deployment, replica set, stateful set, or replication controller",
    run,
    (
        *OUTPUT,
        *RECORD,
        *FILES,
        *DRY_RUN,
        *SAVE_CONFIG,
        *field_manager("kubectl-autoscale"),
        number("min", default=-1, help="The lower limit for the number of pods; unset: the server's own.", bits=32),
        number("max", default=-1, help="The upper limit for the number of pods.", bits=32, required=True),
        number(
            "cpu-percent",
            default=-1,
            help="The target average CPU utilization, in percent of what is requested.",
            bits=32,
            deprecated="Use --cpu with percentage or resource quantity format (e.g., '70%' for utilization or '500m' "
            "for milliCPU).",
        ),
        text("cpu", help="The CPU to aim at for each Pod: in percent of what is requested (70%), or as it is (500m)."),
        text("memory", help="The memory to aim at for each Pod: in percent of what is requested (60%), or as it is."),
        text("name", help="The name for the newly created object; unset: that of the workload."),
    ),
    usage="(-f FILENAME | TYPE NAME | TYPE/NAME) [--min=MINPODS] --max=MAXPODS [--cpu=CPU] [--memory=MEMORY]",
    examples="""
    # Two to ten replicas, so that they use 70% of the CPU they asked for
    setpoint autoscale deployment/web --min=2 --max=10 --cpu=70%
    """,
)
