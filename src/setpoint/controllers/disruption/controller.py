"""The disruption controller."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.controller_group import ControllerGroup
from setpoint.controllers.disruption.budget import failed_status, needs_scale, status_of, still_disrupted
from setpoint.controllers.disruption.expected import ExpectedPods
from setpoint.controllers.disruption.stale_conditions import StaleConditions
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Conflict
from setpoint.meta.goformat import label_selector
from setpoint.meta.selectors import SelectorError, from_label_selector
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of

Obj = dict[str, Any]

BUDGETS = builtin("poddisruptionbudgets", "policy")
_INSTANT = 0.005
"""Added to a delay, because a deadline that falls on this very instant has not passed yet."""


def disruption_controller(manager: Manager, options: ControllerOptions) -> ControllerGroup:
    name = "disruption-controller"
    client, budgets, pods = manager.client_for(name), manager.informer(BUDGETS), manager.informer(PODS)
    recorder = manager.recorder("controllermanager", account=name)
    reconciler = Budgets(client, manager.clock, budgets, pods, ExpectedPods(manager, client), recorder)
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=options.concurrent_disruption_syncs)
    stale = StaleConditions(client, manager.clock, pods)
    clearing = Controller(f"{name} (stale conditions)", stale.reconcile, manager.clock)
    reconciler.watch(controller)

    def pod_changed(old: Obj | None, new: Obj | None) -> None:
        left = stale.stale_in(new) if new is not None else None
        if new is not None and left is not None:
            clearing.queue.add_after(key_of(new), left)

    pods.add_handler(pod_changed)
    return ControllerGroup(controller, clearing)


class Budgets:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        budgets: Informer,
        pods: Informer,
        expected: ExpectedPods,
        recorder: EventRecorder,
    ) -> None:
        self._client = client
        self._clock = clock
        self._budgets = budgets
        self._pods = pods
        self._expected = expected
        self._recorder = recorder
        for informer in (budgets, pods):
            informer.add_index("namespace", _namespace)

    # -- event handlers ---------------------------------------------------------------------------------------------

    def watch(self, controller: Controller) -> None:
        def budget_changed(old: Obj | None, new: Obj | None) -> None:
            controller.enqueue(key_of(new or old or {}))

        def pod_changed(old: Obj | None, new: Obj | None) -> None:
            keys: dict[str, None] = {}
            for pod in (old, new):
                keys.update(dict.fromkeys(self._of(pod) if pod is not None else ()))
            if new is not None and len(self._of(new)) > 1:
                self._warn_of_several(new)
            for key in keys:
                controller.enqueue(key)

        self._budgets.add_handler(budget_changed)
        self._pods.add_handler(pod_changed)

    def _of(self, pod: Obj) -> list[str]:
        labels = pod["metadata"].get("labels") or {}
        found = self._budgets.by_index("namespace", pod["metadata"]["namespace"])
        return [key_of(budget) for budget in found if _selects(budget, labels)]

    def _warn_of_several(self, pod: Obj) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        chosen = self._of(pod)[0].rpartition("/")[2]
        text = f'Pod "{namespace}"/"{name}" matches multiple PodDisruptionBudgets.  Chose "{chosen}" arbitrarily.'
        self._recorder.warning(pod, "MultiplePodDisruptionBudgets", text)

    # -- reconcile --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        budget = self._budgets.get(key)
        if budget is None:
            return None
        try:
            return await self._refresh(budget)
        except Conflict:
            raise
        except ApiError as error:
            await self._write(budget, failed_status(budget, str(error), self._clock.now()))
            return None

    async def _refresh(self, budget: Obj) -> Result | None:
        pods = self._selected(budget)
        expected = await self._count(budget, pods)
        now = self._clock.now()
        disrupted = still_disrupted(budget, pods, now)
        meta = budget["metadata"]
        for pod in disrupted.overdue:
            # Upstream repeats the namespace here; keep the message searchable.
            text = f"Pod was expected by PDB {meta['namespace']}/{meta['namespace']} to be deleted but it wasn't"
            self._recorder.warning(pod, "NotDeleted", text)
        await self._write(budget, status_of(budget, pods, expected, disrupted.pods, now))
        if disrupted.recheck is None:
            return None
        return Result(requeue_after=(disrupted.recheck - now).total_seconds() + _INSTANT)

    def _selected(self, budget: Obj) -> list[Obj]:
        try:
            selector = from_label_selector(budget["spec"].get("selector"))
        except SelectorError as error:
            self._recorder.warning(budget, "NoPods", f"Failed to get pods: {error}")
            raise ApiError(str(error)) from None
        inside = self._pods.by_index("namespace", budget["metadata"]["namespace"])
        pods = [pod for pod in inside if selector.matches(pod["metadata"].get("labels") or {})]
        if not pods:
            self._recorder.normal(budget, "NoPods", "No matching pods found")
        return pods

    async def _count(self, budget: Obj, pods: list[Obj]) -> int:
        if not needs_scale(budget):
            return len(pods)
        try:
            expected, unmanaged = await self._expected.count(pods)
        except ApiError as error:
            text = f"Failed to calculate the number of expected pods: {error}"
            self._recorder.warning(budget, "CalculateExpectedPodCountFailed", text)
            raise
        if unmanaged:
            selector = label_selector(budget["spec"].get("selector"))
            text = (
                f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a "
                "result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "
                'To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
            )
            self._recorder.warning(budget, "UnmanagedPods", text)
        return expected

    async def _write(self, budget: Obj, status: Obj) -> None:
        if status != (budget.get("status") or {}):
            await self._client.update({**budget, "status": status}, subresource="status")


def _namespace(obj: Obj) -> tuple[str]:
    return (obj["metadata"]["namespace"],)


def _selects(budget: Obj, labels: dict[str, str]) -> bool:
    try:
        return from_label_selector(budget["spec"].get("selector")).matches(labels)
    except SelectorError:
        return False
