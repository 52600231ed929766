"""PodTolerationRestriction: the Pods of a namespace tolerate what its annotations say, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from setpoint.apiserver.admission.configuration import TolerationSettings
from setpoint.apiserver.admission.plugin import Attributes, Obj, Plugin, Reader
from setpoint.apiserver.admission.tolerations import covers, merge_tolerations
from setpoint.apiserver.config_files import many
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.podspec.qos import BEST_EFFORT, qos_class
from setpoint.kinds.tables import type_of
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.errors import NotFound, PlainServerError

_DEFAULTS = "scheduler.alpha.kubernetes.io/defaultTolerations"
_ALLOWED = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
_MEMORY_PRESSURE = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}


class PodTolerationRestriction(Plugin):
    name = "PodTolerationRestriction"

    def __init__(self, reader: Reader, settings: TolerationSettings | None = None) -> None:
        self._reader = reader
        self._settings = settings or TolerationSettings()

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation in ("CREATE", "UPDATE") and (resource.group, resource.plural, subresource) == ("", "pods", "")

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        spec, more = attrs.obj["spec"], list[Obj]()
        if attrs.operation == "CREATE":
            said = self._said(attrs.namespace, _DEFAULTS)
            more += self._settings.default if said is None else said
        if ((attrs.obj.get("status") or {}).get("qosClass") or qos_class(attrs.obj)) != BEST_EFFORT:
            more.append(_MEMORY_PRESSURE)
        if more:
            spec["tolerations"] = [dict(one) for one in merge_tolerations(spec.get("tolerations") or (), more)]
        await self.validate(attrs)

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        tolerations = attrs.obj["spec"].get("tolerations")
        if not tolerations:
            return
        allowed: Sequence[Obj] | None = self._said(attrs.namespace, _ALLOWED)
        whose = "namespace"
        if allowed is None:
            allowed, whose = self._settings.allowed, "cluster"
        if allowed and not all(any(covers(one, toleration) for one in allowed) for toleration in tolerations):
            raise PlainServerError(
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its "
                f"{whose} whitelist"
            )

    def _said(self, namespace: str, annotation: str) -> list[Obj] | None:
        """What the namespace says; None: nothing."""
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
