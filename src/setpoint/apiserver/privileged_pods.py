"""`--allow-privileged=false`: rejects privileged Pods and workloads with privileged templates."""

from __future__ import annotations

from collections.abc import Iterator

from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.write_hooks import Hooks
from setpoint.meta.field import Errors, forbidden
from setpoint.meta.objects import Obj

_TEMPLATE = ("spec", "template", "spec")
_SPEC_PATHS = {
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
"""Path of the Pod's specification, by group and plural."""


class _UnprivilegedOnly(Hooks):
    validates = True

    def __init__(self, spec_path: tuple[str, ...]) -> None:
        self._spec_path = spec_path

    async def validate(self, ctx: RequestContext, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        if ctx.target.subresource == "status":
            return []
        spec = obj
        for part in self._spec_path:
            spec = spec.get(part) or {}
        path = ".".join(self._spec_path)
        return [forbidden(f"{path}.{where}", "disallowed by cluster policy") for where in _privileged(spec)]


def _privileged(spec: Obj) -> Iterator[str]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for at, container in enumerate(spec.get(kind) or ()):
            if (container.get("securityContext") or {}).get("privileged"):
                yield f"{kind}[{at}].securityContext.privileged"


def unprivileged_only(hooks: dict[tuple[str, str], Hooks]) -> None:
    hooks.update({resource: _UnprivilegedOnly(spec_path) for resource, spec_path in _SPEC_PATHS.items()})
