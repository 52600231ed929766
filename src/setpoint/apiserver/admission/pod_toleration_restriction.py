"""PodTolerationRestriction: the annotations of a namespace set and restrict the tolerations of its Pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.apiserver.config_files import FileProblem, document, many, read_config
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.podspec.resources import BEST_EFFORT, qos_class
from setpoint.kinds.tables import type_of
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.errors import NotFound, PlainServerError
from setpoint.meta.field import Errors
from setpoint.meta.node_labels import TAINT_MEMORY_PRESSURE
from setpoint.meta.objects import Obj

_DEFAULTS = "scheduler.alpha.kubernetes.io/defaultTolerations"
_ALLOWED = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
_MEMORY_PRESSURE = {"key": TAINT_MEMORY_PRESSURE, "operator": "Exists", "effect": "NoSchedule"}


def merge_tolerations(first: Sequence[Obj], second: Sequence[Obj]) -> list[Obj]:
    """Return all tolerations except those that another one covers."""
    everything = [*first, *second]
    merged: list[Obj] = []
    for i, toleration in enumerate(everything):
        if any(_covers(other, toleration) for other in merged):
            continue
        if any(later != toleration and _covers(later, toleration) for later in everything[i + 1 :]):
            continue
        merged.append(toleration)
    return merged


def _covers(wide: Obj, narrow: Obj) -> bool:
    """Return whether `wide` tolerates everything that `narrow` does."""
    if wide == narrow:
        return True
    operator = wide.get("operator", "")
    if narrow.get("key", "") != wide.get("key", "") and (wide.get("key") or operator != "Exists"):
        return False
    if wide.get("effect") and narrow.get("effect", "") != wide["effect"]:
        return False
    if wide.get("effect") == "NoExecute" and wide.get("tolerationSeconds") is not None:
        seconds = narrow.get("tolerationSeconds")
        if seconds is None or seconds > wide["tolerationSeconds"]:
            return False
    if operator in ("", "Equal"):
        return narrow.get("operator") == "Equal" and narrow.get("value", "") == wide.get("value", "")
    return bool(operator == "Exists")


class TolerationSettings(NamedTuple):
    """The cluster's tolerations, for namespaces without annotations."""

    default: tuple[Obj, ...] = ()
    """Tolerations that are added to new Pods."""
    allowed: tuple[Obj, ...] = ()
    """Tolerations that Pods may have; empty means all."""


class PodTolerationRestriction(Plugin):
    name = "PodTolerationRestriction"

    def __init__(self, reader: Reader, settings: TolerationSettings | None = None) -> None:
        self._reader = reader
        self._settings = settings or TolerationSettings()

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation in ("CREATE", "UPDATE") and (resource.group, resource.plural, subresource) == ("", "pods", "")

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        spec, added = attrs.obj["spec"], list[Obj]()
        if attrs.operation == "CREATE":
            annotated = self._annotated_tolerations(attrs.namespace, _DEFAULTS)
            added += self._settings.default if annotated is None else annotated
        if ((attrs.obj.get("status") or {}).get("qosClass") or qos_class(attrs.obj)) != BEST_EFFORT:
            added.append(_MEMORY_PRESSURE)
        if added:
            spec["tolerations"] = [dict(one) for one in merge_tolerations(spec.get("tolerations") or (), added)]
        await self.validate(attrs)

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        tolerations = attrs.obj["spec"].get("tolerations")
        if not tolerations:
            return
        allowed: Sequence[Obj] | None = self._annotated_tolerations(attrs.namespace, _ALLOWED)
        whose = "namespace"
        if allowed is None:
            allowed, whose = self._settings.allowed, "cluster"
        if allowed and not all(any(_covers(one, toleration) for one in allowed) for toleration in tolerations):
            raise PlainServerError(
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its "
                f"{whose} whitelist"
            )

    def _annotated_tolerations(self, namespace: str, annotation: str) -> list[Obj] | None:
        """Return the tolerations in an annotation of the namespace, or None if there is no such annotation."""
        found = self._reader.get("", "namespaces", "", namespace)
        if found is None:
            raise NotFound.of("", "namespaces", namespace)
        text = (found["metadata"].get("annotations") or {}).get(annotation)
        if not text:
            return None if text is None else []
        try:
            read: list[Obj] | None = decode(many(type_of("io.k8s.api.core.v1.Toleration")), orjson.loads(text))
        except orjson.JSONDecodeError as error:
            cut_short = "unexpected end" in str(error)
            raise PlainServerError("unexpected end of JSON input" if cut_short else str(error)) from None
        except DecodeError as error:
            raise PlainServerError(str(error)) from None
        return read or []


def read_tolerations(data: bytes | None) -> TolerationSettings:
    """Read the plugin's configuration; None stands for a missing one. Raises FileProblem if it is invalid."""
    if not data:
        return TolerationSettings()
    # Few servers have this configuration.
    from setpoint.kinds.core.podspec.scheduling import validate_tolerations

    tolerations = many(type_of("io.k8s.api.core.v1.Toleration"))
    kind = document("v1alpha1.Configuration", default=tolerations, whitelist=tolerations)
    found = read_config(data, {("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration"): kind})
    errs: Errors = []
    for key in ("default", "whitelist"):
        validate_tolerations(found.get(key) or (), f"podtolerationrestriction.{key}", errs)
    if errs:
        raise FileProblem(f"invalid config: [{', '.join(error.message() for error in errs)}]")
    return TolerationSettings(tuple(found.get("default") or ()), tuple(found.get("whitelist") or ()))
