"""Creates, updates and deletes the Pods and claims of a StatefulSet and records the Events that users expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.expectations import WrittenRevisions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.statefulset.identity import (
    belongs_to_predecessor,
    claims_for,
    has_conflicting_controller,
    in_range,
    ordinal_of,
    owners_up_to_date,
    retention,
    with_identity,
    with_owners,
)
from setpoint.meta.errors import AlreadyExists, ApiError, NotFound
from setpoint.meta.objects import Obj
from setpoint.reconcile import EventRecorder, Informer, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import PersistentVolumeClaim, Pod

CLAIMS = builtin("persistentvolumeclaims")


class ClaimsMissing(Exception):
    """The Pod cannot be created yet; the message gives the reason for every claim."""


class Replicas:
    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        pods: Informer[Pod],
        claims: Informer[PersistentVolumeClaim],
        writes: WrittenRevisions,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._pods = pods
        self._claims = claims
        self._writes = writes

    async def create(self, stateful_set: Obj, pod: Pod) -> None:
        """Create the claims first, then the Pod."""
        key = key_of(stateful_set)
        try:
            await self.create_claims(stateful_set, pod)
            self._writes.wrote(key, self._pods, await self._client.create(pod))
        except AlreadyExists:
            raise
        except (ApiError, ClaimsMissing) as error:
            self._record("create", stateful_set, pod, error)
            raise
        try:
            await self.adjust_owners(stateful_set, pod)
        except ApiError as error:
            self._record("update", stateful_set, pod, error)
            raise
        self._record("create", stateful_set, pod)

    async def update(self, stateful_set: Obj, pod: Pod) -> None:
        """Restore the Pod's identity and the owners of its claims."""
        wanted = with_identity(stateful_set, pod)
        try:
            if wanted.get("spec") is not pod.get("spec"):
                await self.create_claims(stateful_set, wanted)
            changed = await self.adjust_owners(stateful_set, wanted)
            if wanted is not pod:
                self._writes.wrote(key_of(stateful_set), self._pods, await self._client.update(wanted))
        except (ApiError, ClaimsMissing) as error:
            self._record("update", stateful_set, pod, error)
            raise
        if changed or wanted is not pod:
            self._record("update", stateful_set, pod)

    async def delete(self, stateful_set: Obj, pod: Pod) -> None:
        meta = pod["metadata"]
        try:
            answer = await self._client.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"])
            self._writes.wrote(key_of(stateful_set), self._pods, answer)
        except NotFound:
            pass
        except ApiError as error:
            self._record("delete", stateful_set, pod, error)
            raise
        self._record("delete", stateful_set, pod)

    # -- claims -------------------------------------------------------------------------------------------------------

    async def complete_claims(self, stateful_set: Obj, pod: Pod) -> None:
        """Create missing claims for a pending Pod."""
        await self.create_claims(stateful_set, pod)
        await self.adjust_owners(stateful_set, pod)

    async def create_claims(self, stateful_set: Obj, pod: Pod) -> None:
        problems = []
        for claim in claims_for(stateful_set, ordinal_of(pod)):
            name = claim["metadata"]["name"]
            there = self._claims.get(key_of(claim))
            if there is not None:
                if "deletionTimestamp" in there["metadata"]:
                    problems.append(f"pvc {name} is being deleted")
                continue
            try:
                made = await self._client.create(claim)
            except AlreadyExists as error:
                problems.append(f"failed to create PVC {name}: {error}")
            except ApiError as error:
                problems.append(f"failed to create PVC {name}: {error}")
                self._record_claim(stateful_set, pod, name, error)
            else:
                self._writes.wrote(key_of(stateful_set), self._claims, made)
                self._record_claim(stateful_set, pod, name)
        if problems:
            raise ClaimsMissing(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")

    def claims_are_stale(self, stateful_set: Obj, pod: Pod) -> bool:
        """Return whether claims of an earlier Pod are still being deleted and must not be used by the new one."""
        if retention(stateful_set)[1] == "Retain":
            return False
        return any(belongs_to_predecessor(claim, pod) for claim in self._present(stateful_set, pod))

    def owners_match(self, stateful_set: Obj, pod: Pod) -> bool:
        beyond = not in_range(stateful_set, pod)
        return all(
            owners_up_to_date(claim, stateful_set, pod, beyond=beyond) for claim in self._present(stateful_set, pod)
        )

    async def adjust_owners(self, stateful_set: Obj, pod: Pod) -> bool:
        """Adjust the owners of the claims. Return whether anything changed."""
        beyond, changed = not in_range(stateful_set, pod), False
        for claim in self._present(stateful_set, pod):
            if has_conflicting_controller(claim, stateful_set, pod):
                message = (
                    f"PersistentVolumeClaim {claim['metadata']['name']} has a conflicting OwnerReference that acts as "
                    "a manging controller, the retention policy is ignored for this claim"
                )
                self._recorder.warning(stateful_set, "ConflictingController", message)
            if not owners_up_to_date(claim, stateful_set, pod, beyond=beyond):
                made = await self._client.update(with_owners(claim, stateful_set, pod, beyond=beyond))
                self._writes.wrote(key_of(stateful_set), self._claims, made)
                changed = True
        return changed

    def _present(self, stateful_set: Obj, pod: Pod) -> list[PersistentVolumeClaim]:
        found = (self._claims.get(key_of(claim)) for claim in claims_for(stateful_set, ordinal_of(pod)))
        return [claim for claim in found if claim is not None]

    # -- events -------------------------------------------------------------------------------------------------------

    def _record(self, verb: str, stateful_set: Obj, pod: Pod, error: Exception | None = None) -> None:
        what = f"{verb.title()} Pod {pod['metadata']['name']} in StatefulSet {stateful_set['metadata']['name']}"
        if error is None:
            self._recorder.normal(stateful_set, f"Successful{verb.title()}", f"{what} successful")
        else:
            self._recorder.warning(stateful_set, f"Failed{verb.title()}", f"{what} failed error: {error}")

    def _record_claim(self, stateful_set: Obj, pod: Pod, claim: str, error: Exception | None = None) -> None:
        name, owner = pod["metadata"]["name"], stateful_set["metadata"]["name"]
        if error is None:
            text = f"Create Claim {claim} Pod {name} in StatefulSet {owner} success"
            self._recorder.normal(stateful_set, "SuccessfulCreate", text)
        else:
            text = f"Create Claim {claim} for Pod {name} in StatefulSet {owner} failed error: {error}"
            self._recorder.warning(stateful_set, "FailedCreate", text)
