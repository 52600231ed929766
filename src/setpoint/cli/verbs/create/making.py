"""What every generator does: read its name, make an object, send it unless it is only to be seen, print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from setpoint.cli.call import Call
from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag
from setpoint.cli.writing import (
    DRY_RUN,
    OUTPUT,
    SAVE_CONFIG,
    VALIDATE,
    DryRun,
    Results,
    dry_run,
    field_manager,
    validation,
)  # fmt: skip
from setpoint.cli.writing.annotation import ANNOTATION
from setpoint.meta.errors import ApiError
from setpoint.meta.gojson import compact

Obj = dict[str, Any]
FLAGS: tuple[Flag, ...] = (
    *OUTPUT,
    *SAVE_CONFIG,
    *VALIDATE,
    *DRY_RUN,
    *field_manager("kubectl-create"),
)


class Making(NamedTuple):
    """The checks are behind it: what follows is the object."""

    call: Call
    name: str
    dry_run: DryRun
    validation: str
    results: Results

    @property
    def command(self) -> list[str]:
        """What stands behind the name, after `--`."""
        return self.call.args[1:]

    async def finish(self, obj: Obj, failed: str = "") -> None:
        """Sends it and prints what became of it. `failed` goes before what the server complains about."""
        call = self.call
        if call.flags.save_config:
            obj = saved(obj)
        if self.dry_run is not DryRun.CLIENT:
            try:
                obj = await call.client.create(
                    obj,
                    dry_run=self.dry_run is DryRun.SERVER,
                    field_manager=call.flags.field_manager,
                    field_validation=self.validation,
                )
            except ApiError as error:
                raise (Failed(f"{failed}{error.message}") if failed else error) from None
        self.results.add(obj, "created", typed=True)


def begin(call: Call) -> Making:
    """Raises Failed."""
    name = name_of(call)
    strategy = dry_run(call)
    results = Results(call, strategy)
    return Making(call, name, strategy, validation(call), results)


def name_of(call: Call) -> str:
    count = len(call.args) if call.dash < 0 else call.dash
    if count != 1:
        call.usage(f"exactly one NAME is required, got {count}")
    return str(call.args[0])


def metadata(
    call: Call,
    name: str,
    *,
    namespaced: bool = True,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Obj:
    """A namespace is said only if it was asked for by name: otherwise it is the one that the object is sent to."""
    found: Obj = {"name": name}
    if namespaced and call.namespace_given:
        found["namespace"] = call.flags.namespace
    found["creationTimestamp"] = None
    if labels:
        found["labels"] = dict(labels)
    if annotations:
        found["annotations"] = dict(annotations)
    return found


def saved(obj: Obj) -> Obj:
    """With itself in its annotation, its fields in the order in which they are."""
    meta = obj["metadata"]
    return {**obj, "metadata": _annotated(meta, {ANNOTATION: compact(obj, ordered=False) + "\n"})}


def _annotated(meta: Obj, more: Mapping[str, str]) -> Obj:
    last = {key: meta[key] for key in ("ownerReferences",) if key in meta}
    first = {key: value for key, value in meta.items() if key not in ("annotations", *last)}
    return {**first, "annotations": dict(sorted({**(meta.get("annotations") or {}), **more}.items())), **last}
