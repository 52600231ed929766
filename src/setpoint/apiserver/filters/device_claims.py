"""Devices are not for everybody who may write claims: administrators' access to them is for namespaces that say so, and
of a claim's status each part is for those whose work it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain, Decision, access_of
from setpoint.apiserver.filters.authorize import forbidden as refused
from setpoint.apiserver.filters.impersonate import service_account
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.watch_cache import Obj
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.field import Errors, forbidden

_LABEL = "resource.kubernetes.io/admin-access"
_NODE_NAME = "authentication.kubernetes.io/node-name"


class AdminAccessGuard(Hooks):
    """ResourceClaimTemplates; their specification does not change."""

    judges = True

    def __init__(self, reader: CacheReader) -> None:
        self._reader = reader

    async def objections(self, call: Call, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        spec = obj["spec"].get("spec") or {}
        return self.of_requests(call, spec) if old is None else []

    def of_requests(self, call: Call, spec: Obj) -> Errors:
        requests = (spec.get("devices") or {}).get("requests") or ()
        return self.of_wanted(call, "spec.devices.requests", [one.get("exactly") or {} for one in requests])

    def of_wanted(self, call: Call, path: str, wanted: Sequence[Obj]) -> Errors:
        at = _first_admin(wanted)
        if at is None:
            return []
        namespace = self._reader.get("", "namespaces", "", call.target.namespace) or {"metadata": {}}
        if (namespace["metadata"].get("labels") or {}).get(_LABEL) == "true":
            return []
        text = f"admin access to devices requires the `{_LABEL}: true` label on the containing namespace"
        return [forbidden(f"{path}[{at}].adminAccess", text)]


class ClaimGuard(AdminAccessGuard):
    """ResourceClaims, and their status."""

    def __init__(self, reader: CacheReader, authorizer: AuthorizerChain) -> None:
        super().__init__(reader)
        self._authorizer = authorizer

    async def objections(self, call: Call, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        if old is None:
            return self.of_requests(call, obj["spec"])
        if call.target.subresource != "status":
            return []
        status, before = obj.get("status") or {}, old.get("status") or {}
        errs: Errors = []
        if _first_admin(_results(before)) is None:
            errs += self.of_wanted(call, "status.allocation.devices.results", _results(status))
        if any((status.get(part) or None) != (before.get(part) or None) for part in ("allocation", "reservedFor")):
            errs += await self._binding(call)
        if status.get("allocation"):
            errs += await self._drivers(call, status, before)
        return errs

    async def _binding(self, call: Call) -> Errors:
        asked = access_of(call)._replace(subresource="binding", namespace="", name="")
        said = await self._refusal(asked)
        if not said:
            return []
        text = (
            'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", '
            f'verb="{asked.verb}" permission: {said}'
        )
        return [forbidden("status.allocation", text)]

    async def _drivers(self, call: Call, status: Obj, before: Obj) -> Errors:
        asked = access_of(call)._replace(subresource="driver")
        verbs = [f"arbitrary-node:{asked.verb}"]
        if _is_on_the_node(call.user, _node_of(status["allocation"])):
            verbs.insert(0, f"associated-node:{asked.verb}")
        errs: Errors = []
        for driver in sorted(_changed(status.get("devices") or (), before.get("devices") or ())):
            said = ""
            for verb in verbs:
                found = await self._refusal(asked._replace(verb=verb, name=driver))
                said = said or found
                if not found:
                    break
            else:
                text = (
                    f'changing status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" '
                    f"permission: {said}"
                )
                errs.append(forbidden("status.devices", text))
        return errs

    async def _refusal(self, access: Access) -> str:
        """Empty: it is allowed."""
        decision, reason = await self._authorizer.decide(access)
        return "" if decision is Decision.ALLOW else refused(access, reason).message


def _results(status: Obj) -> Sequence[Obj]:
    return ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()


def _first_admin(wanted: Iterable[Obj]) -> int | None:
    return next((at for at, one in enumerate(wanted) if one.get("adminAccess")), None)


def _changed(devices: Iterable[Obj], before: Iterable[Obj]) -> set[str]:
    """The drivers of those that came, went or are told of otherwise."""
    there = {_key(device): device for device in before}
    changed = {device["driver"] for device in devices if there.pop(_key(device), None) != device}
    return changed | {device["driver"] for device in there.values()}


def _key(device: Obj) -> tuple[str, ...]:
    return tuple(str(device.get(part) or "") for part in ("driver", "pool", "device", "shareID"))


def _node_of(allocation: Obj) -> str:
    """The node that it is for, if it is for one alone."""
    terms: Sequence[Obj] = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or ()) != 1:
        return ""
    field = terms[0]["matchFields"][0]
    values: Sequence[str] = field.get("values") or ()
    return values[0] if (field.get("key"), field.get("operator"), len(values)) == ("metadata.name", "In", 1) else ""


def _is_on_the_node(user: UserInfo, node: str) -> bool:
    return bool(node) and service_account(user.name) is not None and tuple(user.extra.get(_NODE_NAME, ())) == (node,)
