"""The common steps of all generators: check the name, build an object, send it unless it is a dry run, print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag
from setpoint.cli.invocation import Invocation
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
)
from setpoint.cli.writing.annotation import ANNOTATION
from setpoint.meta.errors import ApiError
from setpoint.meta.gojson import compact
from setpoint.meta.objects import Obj

FLAGS: tuple[Flag, ...] = (
    *OUTPUT,
    *SAVE_CONFIG,
    *VALIDATE,
    *DRY_RUN,
    *field_manager("kubectl-create"),
)


class Making(NamedTuple):
    """A generator whose arguments have been checked."""

    invocation: Invocation
    name: str
    dry_run: DryRun
    validation: str
    results: Results

    @property
    def command(self) -> list[str]:
        """The command after `--`."""
        return self.invocation.args[1:]

    async def finish(self, obj: Obj, failed: str = "") -> None:
        """Send the object and print the result. `failed` is the prefix of the server's error."""
        invocation = self.invocation
        if invocation.flags.save_config:
            obj = saved(obj)
        if self.dry_run is not DryRun.CLIENT:
            try:
                obj = await invocation.client.create(
                    obj,
                    dry_run=self.dry_run is DryRun.SERVER,
                    field_manager=invocation.flags.field_manager,
                    field_validation=self.validation,
                )
            except ApiError as error:
                raise (Failed(f"{failed}{error.message}") if failed else error) from None
        self.results.add(obj, "created", typed=True)


def begin(invocation: Invocation) -> Making:
    """Check the arguments and return the generator. Raise Failed."""
    name = name_of(invocation)
    strategy = dry_run(invocation)
    results = Results(invocation, strategy)
    return Making(invocation, name, strategy, validation(invocation), results)


def name_of(invocation: Invocation) -> str:
    count = len(invocation.args) if invocation.dash < 0 else invocation.dash
    if count != 1:
        invocation.usage(f"exactly one NAME is required, got {count}")
    return str(invocation.args[0])


def metadata(
    invocation: Invocation,
    name: str,
    *,
    namespaced: bool = True,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Obj:
    """Return the metadata; the namespace is set only if the flags name it, as it is otherwise implied by the
    request."""
    found: Obj = {"name": name}
    if namespaced and invocation.namespace_given:
        found["namespace"] = invocation.flags.namespace
    found["creationTimestamp"] = None
    if labels:
        found["labels"] = dict(labels)
    if annotations:
        found["annotations"] = dict(annotations)
    return found


def saved(obj: Obj) -> Obj:
    """Return the object with its last-applied annotation, with the fields in their current order."""
    meta = obj["metadata"]
    return {**obj, "metadata": _annotated(meta, {ANNOTATION: compact(obj, ordered=False) + "\n"})}


def _annotated(meta: Obj, more: Mapping[str, str]) -> Obj:
    last = {key: meta[key] for key in ("ownerReferences",) if key in meta}
    first = {key: value for key, value in meta.items() if key not in ("annotations", *last)}
    return {**first, "annotations": dict(sorted({**(meta.get("annotations") or {}), **more}.items())), **last}
