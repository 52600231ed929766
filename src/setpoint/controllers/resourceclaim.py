"""ResourceClaims: created from templates for Pods, reserved while in use, deallocated afterwards."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.reconcile import Controller, Informer, Manager, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
_FINALIZER = "resource.kubernetes.io/delete-protection"
_LONGEST_BASE = 57
"""The maximum length of a name before the five-character suffix is added."""
_MAX_CONSUMERS = 256
_CLAIMS = builtin("resourceclaims", "resource.k8s.io")
_TEMPLATES = builtin("resourceclaimtemplates", "resource.k8s.io")
_NAME, _ACCOUNT, _FIELD_MANAGER = "resourceclaim-controller", "resource-claim-controller", "ResourceClaimController"
_POD, _CLAIM = "pod:", "claim:"
_BY_CLAIM, _BY_TEMPLATE, _BY_OWNER = "resource claim", "resource claim template", "owning pod"
_MAX_CREATED_CLAIMS = 500


class ClaimNotCreated(LookupError):
    """The claim has not been created from its template yet."""


def _claim_name(pod: Pod, entry: ObjView) -> str | None:
    """Return the name of the claim for an entry of `spec.resourceClaims`, or None if no claim is needed. Raise
    NotMade."""
    if entry.get("resourceClaimName"):
        return str(entry["resourceClaimName"])
    for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if status.get("name") == entry["name"]:
            return status.get("resourceClaimName") or None
    raise ClaimNotCreated("ResourceClaim not created yet")


def _is_made_for(pod: Pod, claim: Obj) -> bool:
    return bool(_owning_pod(claim)[1] == pod["metadata"]["uid"])


def _owning_pod(claim: Obj) -> tuple[str, str]:
    """Return name and uid of the Pod for which the claim was created; empty if there is none."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("apiVersion") == "v1" and owner.get("kind") == "Pod":
            return owner["name"], owner["uid"]
    return "", ""


def _is_done(pod: Pod) -> bool:
    """Return whether no container runs or will ever run."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    return "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName")


def _consumers(claim: Obj) -> list[Obj]:
    return list((claim.get("status") or {}).get("reservedFor") or ())


def _must_be_reserved(pod: Pod, claim: Obj) -> bool:
    """Return whether the claim is allocated and the Pod is bound to a node without a reservation."""
    reserved = _consumers(claim)
    return (
        bool((claim.get("status") or {}).get("allocation"))
        and all(each.get("uid") != pod["metadata"]["uid"] for each in reserved)
        and len(reserved) < _MAX_CONSUMERS
    )


def claim_from(template: Obj, pod: Pod, entry: ObjView) -> Obj:
    meta, spec = pod["metadata"], template["spec"]
    given = spec.get("metadata") or {}
    base = f"{meta['name']}-{entry['name']}-"
    if len(base) > _LONGEST_BASE:
        # Truncate both names in proportion, so that a part of each remains.
        pod_part = meta["name"][: len(meta["name"]) * _LONGEST_BASE // len(base)]
        base = f"{pod_part}-{entry['name'][: len(entry['name']) * _LONGEST_BASE // len(base)]}"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": base,
            "namespace": meta["namespace"],
            "ownerReferences": [owner],
            "annotations": {**(given.get("annotations") or {}), _POD_CLAIM: entry["name"]},
            **({"labels": given["labels"]} if given.get("labels") else {}),
        },
        "spec": spec.get("spec") or {},
    }


# -- controller -------------------------------------------------------------------------------------------------------


class Missing(Exception):
    """An object that a Pod's claim requires does not exist or belongs to another Pod."""


def resource_claim_controller(manager: Manager, options: ControllerOptions) -> Controller:
    return ResourceClaims(manager, options.concurrent_resourceclaim_syncs).controller


class ResourceClaims:
    def __init__(self, manager: Manager, workers: int) -> None:
        self._client = manager.client_for(_ACCOUNT)
        self._recorder = manager.recorder("resource_claim", _ACCOUNT)
        self._pods: Informer[Pod] = manager.informer(PODS)
        self._claims: Informer[Obj] = manager.informer(_CLAIMS)
        self._templates = manager.informer(_TEMPLATES)
        self._made: OrderedDict[tuple[str, str], Obj] = OrderedDict()
        """Claims that were just created, by Pod uid and entry name, until the cache shows them."""
        self._gone: OrderedDict[str, None] = OrderedDict()
        """Uids of Pods that are known to be deleted."""
        self.controller = Controller(_NAME, self.reconcile, manager.clock, workers=workers)
        self._pods.add_index(_BY_CLAIM, _claims_of)
        self._pods.add_index(_BY_TEMPLATE, _templates_of)
        self._claims.add_index(_BY_OWNER, lambda claim: [uid] if (uid := _owning_pod(claim)[1]) else [])
        self._pods.add_handler(self._pod_changed)
        self._claims.add_handler(self._claim_changed)
        self._templates.add_handler(self._template_changed)

    # -- event handlers
    # -------------------------------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old or {}
        entries = pod["spec"].get("resourceClaims") or ()
        extended = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
        if not entries and not extended:
            return
        namespace = pod["metadata"]["namespace"]
        if new is None:
            self._gone[pod["metadata"]["uid"]] = None
            if len(self._gone) > _MAX_CREATED_CLAIMS:
                self._gone.popitem(last=False)
        if new is None or _is_done(pod):
            for name in (*_names(pod), *((extended,) if extended else ())):
                self.controller.enqueue(f"{_CLAIM}{namespace}/{name}")
        if new is not None and _may_run(new):
            self.controller.enqueue(_POD + key_of(new))

    def _claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        claim = new or old or {}
        if new is not None:
            entry = (new["metadata"].get("annotations") or {}).get(_POD_CLAIM, "")
            self._made.pop((_owning_pod(new)[1], entry), None)
            self.controller.enqueue(_CLAIM + key_of(new))
        for pod in self._pods.by_index(_BY_CLAIM, key_of(claim)):
            self._pod_changed(pod, pod)

    def _template_changed(self, old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            for pod in self._pods.by_index(_BY_TEMPLATE, key_of(new)):
                self._pod_changed(pod, pod)

    async def reconcile(self, key: str) -> None:
        if key.startswith(_POD):
            pod = self._pods.get(key.removeprefix(_POD))
            if pod is not None and _may_run(pod):
                await self._sync_pod(pod)
        else:
            claim = self._claims.get(key.removeprefix(_CLAIM))
            if claim is not None:
                await self._sync_claim(claim)

    # -- a Pod --------------------------------------------------------------------------------------------------------

    async def _sync_pod(self, pod: Pod) -> None:
        fresh: dict[str, str] = {}
        for entry in pod["spec"].get("resourceClaims") or ():
            try:
                made = await self._claim_for(pod, entry)
            except (ApiError, Missing) as error:
                message = f"PodResourceClaim {entry['name']}: {error}"
                self._recorder.warning(pod, "FailedResourceClaimCreation", message)
                raise
            if made is not None:
                fresh[entry["name"]] = made["metadata"]["name"]
        if fresh:
            await self._write_statuses(pod, fresh)
        if not pod["spec"].get("nodeName"):
            return  # the scheduler reserves claims of Pods that it binds
        for entry in pod["spec"].get("resourceClaims") or ():
            name = fresh.get(entry["name"]) or _claim_name(pod, entry)
            claim = self._claims.get(f"{pod['metadata']['namespace']}/{name}") if name else None
            if claim is not None and _must_be_reserved(pod, claim):
                mine = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
                status = {**claim["status"], "reservedFor": [*_consumers(claim), mine]}
                await self._client.update({**claim, "status": status}, resource=_CLAIMS, subresource="status")

    async def _claim_for(self, pod: Pod, entry: ObjView) -> Obj | None:
        """Return the claim to record in the Pod's status, or None if nothing changes. Raise Missing."""
        namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
        try:
            name = _claim_name(pod, entry)
        except ClaimNotCreated:
            pass
        else:
            there = self._claims.get(f"{namespace}/{name}") if name else None
            if name is None or (there is not None and (entry.get("resourceClaimName") or _is_made_for(pod, there))):
                return None
            if there is None and (made := self._made.get((uid, entry["name"]))) and made["metadata"]["name"] == name:
                return None  # the cache is stale
        template_name = entry.get("resourceClaimTemplateName")
        if not template_name:
            return None  # the creator of the Pod creates the claim
        for claim in self._claims.by_index(_BY_OWNER, uid):
            if (claim["metadata"].get("annotations") or {}).get(_POD_CLAIM) == entry["name"]:
                return claim  # created earlier, but not recorded in the status
        template = self._templates.get(f"{namespace}/{template_name}")
        if template is None:
            raise Missing(
                f'resource claim template "{template_name}": '
                f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            )
        made = await self._client.create(claim_from(template, pod, entry))
        if int(self._claims.resource_version or 0) < int(made["metadata"]["resourceVersion"]):
            self._made[(uid, entry["name"])] = made
        if len(self._made) > _MAX_CREATED_CLAIMS:
            self._made.popitem(last=False)
        return made

    async def _write_statuses(self, pod: Pod, fresh: dict[str, str]) -> None:
        known = {
            each["name"]: each["resourceClaimName"]
            for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
            if each.get("resourceClaimName")
        }
        statuses = [{"name": name, "resourceClaimName": claim} for name, claim in sorted({**known, **fresh}.items())]
        meta = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
        applied = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"resourceClaimStatuses": statuses}}
        await self._client.apply(applied, field_manager=_FIELD_MANAGER, force=True, subresource="status")

    # -- a claim ------------------------------------------------------------------------------------------------------

    async def _sync_claim(self, claim: Obj) -> None:
        reserved = _consumers(claim)
        left = [each for each in reserved if await self._still_uses(claim, each)]
        protected = _FINALIZER in (claim["metadata"].get("finalizers") or ())
        if len(left) < len(reserved):
            # An update, not a patch: it must fail on any concurrent change.
            claim = await self._with_consumers(claim, left, deallocated=not left and protected)
            if protected and not (claim.get("status") or {}).get("allocation"):
                claim = await self._without_finalizer(claim)
        elif protected and "deletionTimestamp" in claim["metadata"] and not left:
            if (claim.get("status") or {}).get("allocation"):
                claim = await self._with_consumers(claim, left, deallocated=True)
            claim = await self._without_finalizer(claim)
        if not left:
            await self._delete_if_unused(claim)

    async def _still_uses(self, claim: Obj, consumer: Obj) -> bool:
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True  # unknown consumer: assume that it is in use
        if consumer["uid"] in self._gone:
            return False
        namespace = claim["metadata"]["namespace"]
        pod = self._pods.get(f"{namespace}/{consumer['name']}")
        if pod is not None:
            return bool(pod["metadata"]["uid"] == consumer["uid"]) and not _is_done(pod)
        try:
            # It may be so new that the cache does not show it.
            found = await self._client.get(PODS, consumer["name"], namespace)
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == consumer["uid"])

    async def _with_consumers(self, claim: Obj, left: list[Obj], *, deallocated: bool) -> Obj:
        status = {name: value for name, value in (claim.get("status") or {}).items() if name != "reservedFor"}
        if left:
            status["reservedFor"] = left
        if deallocated:
            status.pop("allocation", None)
        return await self._client.update({**claim, "status": status}, resource=_CLAIMS, subresource="status")

    async def _without_finalizer(self, claim: Obj) -> Obj:
        meta = claim["metadata"]
        finalizers = [each for each in meta.get("finalizers") or () if each != _FINALIZER]
        return await self._client.update({**claim, "metadata": {**meta, "finalizers": finalizers}}, resource=_CLAIMS)

    async def _delete_if_unused(self, claim: Obj) -> None:
        """Delete a claim whose Pod will not run, because the Pod itself may remain for long."""
        meta = claim["metadata"]
        name, uid = _owning_pod(claim)
        pod = self._pods.get(f"{meta['namespace']}/{name}") if name else None
        if pod is not None and (pod["metadata"]["uid"] != uid or _is_done(pod)) and "deletionTimestamp" not in meta:
            try:
                await self._client.delete(_CLAIMS, meta["name"], meta["namespace"], uid=meta["uid"])
            except NotFound:
                return


def _may_run(pod: Pod) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and not _is_done(pod)


def _names(pod: Pod) -> list[str]:
    """Return the names of the Pod's existing claims."""
    found = []
    for entry in pod["spec"].get("resourceClaims") or ():
        try:
            name = _claim_name(pod, entry)
        except ClaimNotCreated:
            continue
        if name is not None:
            found.append(name)
    return found


def _claims_of(pod: Pod) -> list[str]:
    if not pod["spec"].get("resourceClaims"):
        return []
    return [f"{pod['metadata']['namespace']}/{name}" for name in _names(pod)]


def _templates_of(pod: Pod) -> list[str]:
    return [
        f"{pod['metadata']['namespace']}/{entry['resourceClaimTemplateName']}"
        for entry in pod["spec"].get("resourceClaims") or ()
        if entry.get("resourceClaimTemplateName")
    ]
