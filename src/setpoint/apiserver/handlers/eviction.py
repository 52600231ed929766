"""POST to `/eviction` of a Pod: delete it if its disruption budget allows it."""

from __future__ import annotations

from typing import Protocol

from setpoint.apiserver.bodies import check_object, parse
from setpoint.apiserver.deletion import revision_mismatch, uid_mismatch
from setpoint.apiserver.handlers.binding import UNVALIDATED, created, private_copy
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import DeleteOptions, delete_options, write_options
from setpoint.apiserver.preparation import OTHER_NAMESPACE
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.write_path import WritePath
from setpoint.kinds.core import pod_binding as rules
from setpoint.kinds.core.pod_binding import evicted, ignores_disruption_budget, needs_same_version_to_evict
from setpoint.kinds.tables import type_of
from setpoint.meta.conditions import condition_of, is_true, without_condition
from setpoint.meta.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    PlainServerError,
    ServerTimeout,
    TooManyRequests,
)
from setpoint.meta.field import Errors
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import SelectorError, from_label_selector
from setpoint.meta.times import format_time
from setpoint.wire.message import Answer

_TYPE = "io.k8s.api.policy.v1.Eviction"
_MAX_DISRUPTED = 2000


class Registries(Protocol):
    def registry(self, group: str, plural: str) -> Registry: ...


class Evictions:
    """Evicts Pods and updates their disruption budgets."""

    def __init__(self, registries: Registries) -> None:
        self._registries = registries

    @property
    def _budgets(self) -> Registry:
        return self._registries.registry("policy", "poddisruptionbudgets")

    async def evict(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        """Evict a Pod; `registry` is that of Pods."""
        write_options(ctx, "CreateOptions")
        requested_dry_run = ctx.dry_run
        value, strict = parse(ctx, "policy", "v1", "Eviction", type_of(_TYPE))
        if isinstance(value, dict) and value.get("apiVersion") == "policy/v1beta1":
            value = {**value, "apiVersion": "policy/v1"}
        eviction = check_object(ctx, value, strict, "policy", "v1", "Eviction", type_of(_TYPE))
        ctx.record_request_object(eviction, "Eviction", "policy/v1")
        name = ctx.target.name
        if eviction["metadata"].get("namespace", "") not in ("", ctx.target.namespace):
            raise BadRequest(OTHER_NAMESPACE)
        if eviction["metadata"].get("name", "") != name:
            raise BadRequest("name in URL does not match name in Eviction object")
        errs: Errors = []
        rules.validate_eviction(eviction, errs)
        if errs:
            raise Invalid.of("policy", "Eviction", name, errs)
        body = rules.delete_options(eviction, ctx.query.get("dryRun", []))
        eviction["metadata"].setdefault("namespace", ctx.target.namespace)
        await WritePath(ctx, registry).admit("CREATE", eviction, name, "eviction", requested_dry_run)
        pod = registry.get(ctx.target.namespace, name).obj
        options = delete_options(ctx, body)
        same_version = False
        if ignores_disruption_budget(pod):
            same_version = needs_same_version_to_evict(pod)
        else:
            same_version = await self._check_budget(ctx, pod)
        if same_version and options.revision is None:
            options.revision = pod["metadata"]["resourceVersion"]
        await self._delete(ctx, registry, name, options)
        return created(ctx, form)

    async def _check_budget(self, ctx: RequestContext, pod: Obj) -> bool:
        """Return whether the Pod may only be deleted in its current revision. Raises if the budget does not allow the
        eviction."""
        budgets = self._budgets_of(pod)
        if len(budgets) > 1:
            raise PlainServerError(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        if not budgets:
            return False
        budget = budgets[0]
        if not is_true(pod, "Ready"):
            status = budget.get("status") or {}
            if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
                return True
            if status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0:
                return True
        await self._use_disruption(ctx, budget["metadata"]["name"], pod["metadata"]["name"])
        return False

    def _budgets_of(self, pod: Obj) -> list[Obj]:
        labels, found = pod["metadata"].get("labels") or {}, []
        for entry in self._budgets.cache.scan(pod["metadata"]["namespace"]):
            try:
                if from_label_selector((entry.obj.get("spec") or {}).get("selector")).matches(labels):
                    found.append(entry.obj)
            except SelectorError:
                continue
        return found

    async def _use_disruption(self, ctx: RequestContext, name: str, pod_name: str) -> None:
        """Decrement the disruptions that the budget allows."""
        registry = self._budgets

        async def change(live: Obj | None) -> Obj:
            if live is None:
                raise registry.not_found(name)
            budget = private_copy(registry, live)
            status = budget["status"]
            if status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
                raise _retry_later(name, f"The disruption budget {name} is still being processed by the server.", 10)
            allowed = status.get("disruptionsAllowed", 0)
            if allowed < 0:
                raise Forbidden.of("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative")
            if len(status.get("disruptedPods") or {}) > _MAX_DISRUPTED:
                raise Forbidden.of(
                    "policy",
                    "poddisruptionbudget",
                    name,
                    "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
                )
            if allowed == 0:
                raise _exhausted(name, live)
            status["disruptionsAllowed"] = allowed - 1
            if allowed - 1 == 0:
                _mark_insufficient(status, live["metadata"].get("generation", 0), format_time(ctx.now))
            status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod_name: format_time(ctx.now)}
            return budget

        try:
            await WritePath(ctx, registry).update(name, change, strategy=UNVALIDATED, admit=False)
        except Conflict:
            raise ServerTimeout.of("policy", "poddisruptionbudgets", "update", 10) from None

    async def _delete(self, ctx: RequestContext, registry: Registry, name: str, options: DeleteOptions) -> None:
        if not ctx.dry_run:

            async def mark(live: Obj | None) -> Obj:
                if live is None:
                    raise registry.not_found(name)
                meta = live["metadata"]
                if options.uid is not None and options.uid != meta["uid"]:
                    raise Conflict.of("", "Pod", name, uid_mismatch(options.uid, meta["uid"]))
                if options.revision is not None and options.revision != meta["resourceVersion"]:
                    raise Conflict.of("", "Pod", name, revision_mismatch(options.revision, meta["resourceVersion"]))
                return private_copy(registry, evicted(live, ctx.now))

            marked, _ = await WritePath(ctx, registry).update(name, mark, strategy=UNVALIDATED, admit=False)
            if options.revision is not None:
                options.revision = str(marked.revision)
        await WritePath(ctx, registry).delete(name, options, admit=False)


def _retry_later(name: str, message: str, seconds: int) -> TooManyRequests:
    error = TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.")
    error.details = {
        "causes": [{"reason": "DisruptionBudget", "message": message}],
        "retryAfterSeconds": seconds,
    }
    return error


def _exhausted(name: str, budget: Obj) -> TooManyRequests:
    status = budget.get("status") or {}
    allowed = condition_of(budget, "DisruptionAllowed") or {}
    if allowed.get("reason") == "SyncFailed":
        failed = allowed.get("message", "")
        return _budget_error(
            f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {failed}"
        )
    needed, have = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    return _budget_error(f"The disruption budget {name} needs {needed} healthy pods and has {have} currently")


def _budget_error(message: str) -> TooManyRequests:
    error = TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.")
    error.details = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    return error


def _mark_insufficient(status: Obj, generation: int, now: str) -> None:
    """Set the condition DisruptionAllowed to False, as the disruption controller would."""
    status["conditions"] = [
        *without_condition(status.get("conditions") or (), "DisruptionAllowed"),
        {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": generation,
            "lastTransitionTime": now,
            "reason": "InsufficientPods",
            "message": "",
        },
    ]
