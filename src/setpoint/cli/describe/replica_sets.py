"""Find the old ReplicaSets and the current one of a Deployment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.cli.describe.context import DescribeContext, meta, spec, status
from setpoint.cli.describe.metadata import controller
from setpoint.client.interface import Obj
from setpoint.client.resources import builtin
from setpoint.kinds.columns import NONE
from setpoint.meta.errors import ApiError
from setpoint.meta.selectors import format_labels

HASH_LABEL = "pod-template-hash"


async def replica_sets_of(ctx: DescribeContext, deployment: Obj) -> tuple[list[Obj], list[Obj]]:
    """Return (old, new), both sorted by age; both are empty if the user may not list ReplicaSets."""
    try:
        found = await ctx.all(
            builtin("replicasets", "apps"),
            meta(deployment).get("namespace", ""),
            label_selector=format_labels(spec(deployment).get("selector")).removeprefix(NONE),
        )
    except ApiError:
        return [], []
    uid = meta(deployment).get("uid")
    owned = [each for each in found if (controller(each) or {}).get("uid") == uid]
    owned.sort(key=lambda each: (str(meta(each).get("creationTimestamp", "")), str(meta(each).get("name", ""))))
    wanted = _template(deployment)
    new = next((each for each in owned if _template(each) == wanted), None)
    return [each for each in owned if each is not new], [] if new is None else [new]


def _template(workload: Obj) -> Any:
    """Return the template without the label that the Deployment adds to it."""
    template = spec(workload).get("template") or {}
    labels = {key: value for key, value in (meta(template).get("labels") or {}).items() if key != HASH_LABEL}
    about = {key: value for key, value in {**meta(template), "labels": labels}.items() if value}
    return _filled({**template, "metadata": about})


def _filled(value: Any) -> Any:
    """Return a value without empty lists, which are equal to missing ones."""
    if isinstance(value, dict):
        return {key: _filled(each) for key, each in value.items() if each is not None and each != []}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def replica_sets_text(sets: Sequence[Obj]) -> str:
    return (
        ", ".join(
            f"{meta(each).get('name', '')} ({status(each).get('replicas', 0)}/{spec(each).get('replicas', 0)} "
            "replicas created)"
            for each in sets
        )
        or NONE
    )
