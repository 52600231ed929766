"""`/eviction` of a Pod: a delete that asks the disruption budgets first."""

from __future__ import annotations

from typing import Protocol

from setpoint.apiserver import deletion
from setpoint.apiserver.bodies import check_object, parse
from setpoint.apiserver.call import Call
from setpoint.apiserver.handlers.binding import AS_GIVEN, admit_order, created, private_copy
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import DeleteOptions, delete_options, write_options
from setpoint.apiserver.preparation import OTHER_NAMESPACE
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.core.pod_binding import evicted, ignores_disruption_budget, needs_same_version_to_evict
from setpoint.kinds.policy import eviction as rules
from setpoint.kinds.tables import type_of
from setpoint.meta.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    PlainServerError,
    ServerTimeout,
    TooManyRequests,
)  # fmt: skip
from setpoint.meta.field import Errors
from setpoint.meta.selectors import SelectorError, from_label_selector
from setpoint.meta.times import format_time

_TYPE = "io.k8s.api.policy.v1.Eviction"
_MAX_DISRUPTED = 2000


class Registries(Protocol):
    def registry(self, group: str, plural: str) -> Registry: ...


class Evictions:
    """Knows the disruption budgets, which are accounted for in the same breath."""

    def __init__(self, registries: Registries) -> None:
        self._registries = registries

    @property
    def _budgets(self) -> Registry:
        return self._registries.registry("policy", "poddisruptionbudgets")

    async def evict(self, call: Call, registry: Registry, form: Form) -> Answer:
        """`registry` is that of Pods."""
        write_options(call, "CreateOptions")
        asked_dry = call.dry_run
        value, strict = parse(call, "policy", "v1", "Eviction", type_of(_TYPE))
        if isinstance(value, dict) and value.get("apiVersion") == "policy/v1beta1":
            value = {**value, "apiVersion": "policy/v1"}
        eviction = check_object(call, value, strict, "policy", "v1", "Eviction", type_of(_TYPE))
        call.sent(eviction, "Eviction", "policy/v1")
        name = call.target.name
        if eviction["metadata"].get("namespace", "") not in ("", call.target.namespace):
            raise BadRequest(OTHER_NAMESPACE)
        if eviction["metadata"].get("name", "") != name:
            raise BadRequest("name in URL does not match name in Eviction object")
        errs: Errors = []
        rules.validate_eviction(eviction, errs)
        if errs:
            raise Invalid.of("policy", "Eviction", name, errs)
        body = rules.delete_options(eviction, call.query.get("dryRun", []))
        await admit_order(call, registry, "eviction", name, eviction, asked_dry)
        pod = registry.get(call.target.namespace, name).obj
        options = delete_options(call, body)
        same_version = False
        if ignores_disruption_budget(pod):
            same_version = needs_same_version_to_evict(pod)
        else:
            same_version = await self._ask_budget(call, pod)
        if same_version and options.revision is None:
            options.revision = pod["metadata"]["resourceVersion"]
        await self._delete(call, registry, name, options)
        return created(call, form)

    async def _ask_budget(self, call: Call, pod: Obj) -> bool:
        """Raises if a budget says no; otherwise whether the Pod must still be as it is now when it is deleted."""
        budgets = self._of(pod)
        if len(budgets) > 1:
            raise PlainServerError(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        if not budgets:
            return False
        budget = budgets[0]
        if not _ready(pod):
            status = budget.get("status") or {}
            if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
                return True
            if status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0:
                return True
        await self._take_one(call, budget["metadata"]["name"], pod["metadata"]["name"])
        return False

    def _of(self, pod: Obj) -> list[Obj]:
        labels, found = pod["metadata"].get("labels") or {}, []
        for entry in self._budgets.cache.scan(pod["metadata"]["namespace"]):
            try:
                if from_label_selector((entry.obj.get("spec") or {}).get("selector")).matches(labels):
                    found.append(entry.obj)
            except SelectorError:
                continue
        return found

    async def _take_one(self, call: Call, name: str, pod_name: str) -> None:
        """Use up one of the disruptions that the budget allows."""
        registry = self._budgets

        async def change(live: Obj | None) -> Obj:
            if live is None:
                raise registry.not_found(name)
            budget = private_copy(registry, live)
            status = budget["status"]
            if status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
                raise _later(name, f"The disruption budget {name} is still being processed by the server.", 10)
            allowed = status.get("disruptionsAllowed", 0)
            if allowed < 0:
                raise Forbidden.of("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative")
            if len(status.get("disruptedPods") or {}) > _MAX_DISRUPTED:
                raise Forbidden.of(
                    "policy", "poddisruptionbudget", name,
                    "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
                )  # fmt: skip
            if allowed == 0:
                raise _exhausted(name, live)
            status["disruptionsAllowed"] = allowed - 1
            if allowed - 1 == 0:
                _mark_insufficient(status, live["metadata"].get("generation", 0), format_time(call.now))
            status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod_name: format_time(call.now)}
            return budget

        try:
            await registry.update(call, name, change, strategy=AS_GIVEN, admit=False)
        except Conflict:
            raise ServerTimeout.of("policy", "poddisruptionbudgets", "update", 10) from None

    async def _delete(self, call: Call, registry: Registry, name: str, options: DeleteOptions) -> None:
        if not call.dry_run:

            async def mark(live: Obj | None) -> Obj:
                if live is None:
                    raise registry.not_found(name)
                meta = live["metadata"]
                if options.uid is not None and options.uid != meta["uid"]:
                    raise Conflict.of("", "Pod", name, deletion.wrong_uid(options.uid, meta["uid"]))
                if options.revision is not None and options.revision != meta["resourceVersion"]:
                    raise Conflict.of(
                        "", "Pod", name, deletion.wrong_version(options.revision, meta["resourceVersion"])
                    )
                return private_copy(registry, evicted(live, call.now))

            marked, _ = await registry.update(call, name, mark, strategy=AS_GIVEN, admit=False)
            if options.revision is not None:
                options.revision = str(marked.revision)
        await deletion.delete(call, registry, name, options, admit=False)


def _ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def _later(name: str, message: str, seconds: int) -> TooManyRequests:
    error = TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.")
    error.details = {
        "causes": [{"reason": "DisruptionBudget", "message": message}],
        "retryAfterSeconds": seconds,
    }
    return error


def _exhausted(name: str, budget: Obj) -> TooManyRequests:
    status = budget.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionAllowed" and condition.get("reason") == "SyncFailed":
            failed = condition.get("message", "")
            return _without_hint(
                f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {failed}"
            )
    needed, have = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    return _without_hint(f"The disruption budget {name} needs {needed} healthy pods and has {have} currently")


def _without_hint(message: str) -> TooManyRequests:
    error = TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.")
    error.details = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    return error


def _mark_insufficient(status: Obj, generation: int, now: str) -> None:
    """Nothing more is allowed: say so in the condition, as the disruption controller would."""
    conditions = [c for c in status.get("conditions") or () if c.get("type") != "DisruptionAllowed"]
    status["conditions"] = [
        *conditions,
        {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": generation,
            "lastTransitionTime": now,
            "reason": "InsufficientPods",
            "message": "",
        },
    ]
