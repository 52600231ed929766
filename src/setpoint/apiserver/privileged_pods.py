"""`--allow-privileged=false`: no Pod is privileged, and no workload asks for one that is."""

from __future__ import annotations

from collections.abc import Iterator

from setpoint.apiserver.call import Call
from setpoint.apiserver.watch_cache import Obj
from setpoint.apiserver.write_hooks import Hooks
from setpoint.meta.field import Errors, forbidden

_TEMPLATE = ("spec", "template", "spec")
_PLACES = {
    ("", "pods"): ("spec",),
    ("", "podtemplates"): ("template", "spec"),
    ("", "replicationcontrollers"): _TEMPLATE,
    ("apps", "daemonsets"): _TEMPLATE,
    ("apps", "deployments"): _TEMPLATE,
    ("apps", "replicasets"): _TEMPLATE,
    ("apps", "statefulsets"): _TEMPLATE,
    ("batch", "cronjobs"): ("spec", "jobTemplate", *_TEMPLATE),
    ("batch", "jobs"): _TEMPLATE,
}
"""Where the specification of a Pod is, by group and plural."""


class _UnprivilegedOnly(Hooks):
    judges = True

    def __init__(self, place: tuple[str, ...]) -> None:
        self._place = place

    async def objections(self, call: Call, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        if call.target.subresource == "status":
            return []
        spec = obj
        for part in self._place:
            spec = spec.get(part) or {}
        path = ".".join(self._place)
        return [forbidden(f"{path}.{where}", "disallowed by cluster policy") for where in _privileged(spec)]


def _privileged(spec: Obj) -> Iterator[str]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for at, container in enumerate(spec.get(kind) or ()):
            if (container.get("securityContext") or {}).get("privileged"):
                yield f"{kind}[{at}].securityContext.privileged"


def unprivileged_only(hooks: dict[tuple[str, str], Hooks]) -> None:
    hooks.update({resource: _UnprivilegedOnly(place) for resource, place in _PLACES.items()})
