"""ResourceQuota: a namespace uses no more than its quotas allow.

The usage of a write is added to the quotas' status before the object is stored, each by compare-and-swap. If the write
fails afterwards, the quota controller corrects the usage. Concurrent writes in one namespace are charged as one batch,
so that they cost one update of the quota.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.apiserver.config_files import TEXT, FileProblem, document, many, read_config, struct
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.podspec.resources import Amounts
from setpoint.kinds.core.quota_usage import Meter, meter, scopes_of
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Conflict, NotFound, PlainServerError
from setpoint.meta.field import aggregate_message, required
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import add, compare, sub

WriteUsage = Callable[[Obj, Amounts], Awaitable[object]]
"""Sets `status.used` of a quota if it is still the stored one. Raises Conflict or NotFound otherwise."""

_TIMEOUT = 10.0
"""Seconds during which a charge is tried again after another server, or the quota controller, changed the quota."""
_RETRY_PAUSE = 0.05
"""Seconds before a charge is tried again although the quota has not changed here."""
_SCOPE = struct("v1.ScopedResourceSelectorRequirement", scopeName=TEXT, operator=TEXT, values=many(TEXT))
_LIMITED = struct(
    "v1.LimitedResource", apiGroup=TEXT, resource=TEXT, matchContains=many(TEXT), matchScopes=many(_SCOPE)
)
_CONFIGURATION = document("v1.Configuration", limitedResources=many(_LIMITED))
_CONFIGURATIONS = {
    ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"): _CONFIGURATION,
    ("resourcequota.admission.k8s.io/v1beta1", "Configuration"): _CONFIGURATION,
    ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"): _CONFIGURATION,
}


class _Waiter:
    """A write that waits for its charge: `wake` is set when it is charged, or with `lead` when it must charge the next
    batch."""

    __slots__ = ("attrs", "error", "lead", "wake")

    def __init__(self, attrs: Attributes, wake: asyncio.Future[None]) -> None:
        self.attrs = attrs
        self.wake = wake
        self.lead = False
        self.error: ApiError | None = None


class ResourceQuota(Plugin):
    name = "ResourceQuota"

    def __init__(self, reader: Reader, clock: Clock, write_usage: WriteUsage, limited: Sequence[Obj] = ()) -> None:
        """`limited` names the resources that may be used only where a quota covers them."""
        self._reader = reader
        self._clock = clock
        self._write_usage = write_usage
        self._limited = limited
        self._waiting: dict[str, list[_Waiter]] = {}
        """Queued writes by namespace; a namespace is present while one of its writes is being charged."""

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        if not resource.namespaced or not resource.is_stored:
            return False
        found = meter(resource.group, resource.plural)
        if found is None:
            return False
        if operation == "CREATE":
            return not subresource
        return operation == "UPDATE" and subresource in found.updates

    async def validate(self, attrs: Attributes) -> None:
        namespace = attrs.namespace
        found = self._reader.list("", "resourcequotas", namespace)
        if not self._limited and (not found or next(iter(found), None) is None):
            return
        measured = meter(attrs.resource.group, attrs.resource.plural)
        assert measured is not None and attrs.obj is not None
        if attrs.old is not None and not measured.changes(attrs.obj, attrs.old, attrs.subresource):
            return
        own = _Waiter(attrs, asyncio.get_running_loop().create_future())
        queue = self._waiting.get(namespace)
        if queue is None:
            self._waiting[namespace] = []
            await self._lead(namespace, [own])
        else:
            queue.append(own)
            try:
                await own.wake
            except asyncio.CancelledError:
                if own.lead:
                    self._wake_next(namespace)
                elif own in queue:
                    queue.remove(own)
                raise
            if own.lead:
                batch, self._waiting[namespace] = [own, *self._waiting[namespace]], []
                await self._lead(namespace, batch)
        if own.error is not None:
            raise own.error

    async def _lead(self, namespace: str, batch: list[_Waiter]) -> None:
        settled = False
        try:
            await self._charge_batch(namespace, batch)
            settled = True
        finally:
            if not settled:
                # The leader was cancelled: requeue the other writes of its batch.
                self._waiting[namespace][:0] = batch[1:]
            else:
                for waiter in batch[1:]:
                    if not waiter.wake.done():
                        waiter.wake.set_result(None)
            self._wake_next(namespace)

    def _wake_next(self, namespace: str) -> None:
        """Let the next waiting write lead the next batch, or mark the namespace as idle."""
        queue = self._waiting[namespace]
        while queue:
            waiter = queue.pop(0)
            if not waiter.wake.done():
                waiter.lead = True
                waiter.wake.set_result(None)
                return
        del self._waiting[namespace]

    async def _charge_batch(self, namespace: str, batch: Sequence[_Waiter]) -> None:
        """Charge all writes of the batch; afterwards each has its error or None."""
        wanted: Container[str] | None = None
        pending = list(batch)
        deadline = self._clock.monotonic() + _TIMEOUT
        while True:
            quotas = [
                quota
                for quota in self._reader.list("", "resourcequotas", namespace)
                if wanted is None or quota["metadata"]["name"] in wanted
            ]
            used = [dict((quota.get("status") or {}).get("used") or {}) for quota in quotas]
            before = list(used)
            for waiter in list(pending):
                try:
                    after = charge(quotas, used, waiter.attrs, self._limited)
                except ApiError as error:
                    waiter.error = error
                    pending.remove(waiter)
                    continue
                if waiter.attrs.dry_run:
                    pending.remove(waiter)
                else:
                    used = after
            refused, failure = dict[str, Obj](), None
            for quota, old, new in zip(quotas, before, used, strict=True):
                if new == old:
                    continue
                try:
                    await self._write_usage(quota, new)
                except NotFound:
                    continue
                except Conflict as error:
                    failure = error
                    refused[quota["metadata"]["name"]] = quota
            if failure is None:
                return
            if self._clock.monotonic() >= deadline:
                for waiter in pending:
                    waiter.error = failure
                return
            if all(quota is self._reader.get("", "resourcequotas", namespace, name) for name, quota in refused.items()):
                await self._clock.sleep(_RETRY_PAUSE)
            wanted = refused


def charge(
    quotas: Sequence[Obj], used: Sequence[Amounts], attrs: Attributes, limited: Sequence[Obj] = ()
) -> list[Amounts]:
    """Return the usage of each quota after this write. Raises Forbidden if a quota does not allow it."""
    measured = meter(attrs.resource.group, attrs.resource.plural)
    assert measured is not None and attrs.obj is not None
    matching: list[int] = []
    for index, quota in enumerate(quotas):
        if not _applies(measured, quota, attrs.obj):
            continue
        name = quota["metadata"]["name"]
        names = [key for key in _hard(quota) if measured.measures(key)]
        missing = measured.missing(names, attrs.obj)
        if missing:
            raise attrs.forbidden(f"failed quota: {name}: {missing}")
        if any(key not in used[index] for key in names):
            raise attrs.forbidden(f"status unknown for quota: {name}, resources: {','.join(sorted(names))}")
        matching.append(index)
    result = list(used)
    if not matching and not limited:
        return result
    usage = measured.usage(attrs.obj, attrs.now)
    negative = sorted(key for key, amount in usage.items() if compare(amount, "0") < 0)
    if negative:
        raise attrs.forbidden(f"quota usage is negative for resource(s): {','.join(negative)}")
    growth = _growth(usage, measured.usage(attrs.old, attrs.now)) if attrs.old is not None else usage
    if limited and any(compare(amount, "0") for amount in growth.values()):
        covered = {key for index in matching for key in _hard(quotas[index]) if measured.measures(key)}
        _check_covered(attrs, measured, limited, usage, covered, quotas)
    for index in matching:
        quota = quotas[index]
        was_charged = attrs.old is not None and _applies(measured, quota, attrs.old)
        hard = _hard(quota)
        more = {
            key: amount
            for key, amount in (growth if was_charged else usage).items()
            if key in hard and compare(amount, "0")
        }
        if more:
            result[index] = _added(attrs, quota, result[index], more, hard)
    return result


def _check_covered(
    attrs: Attributes, measured: Meter, limited: Sequence[Obj], usage: Amounts, covered: set[str], quotas: Sequence[Obj]
) -> None:
    """Deny the write if it uses a limited resource that no quota covers. Raises ApiError."""
    assert attrs.obj is not None
    kind = (attrs.resource.group, attrs.resource.plural)
    parts = [
        part
        for one in limited
        if (one.get("apiGroup", ""), one["resource"]) == kind
        for part in one.get("matchContains") or ()
    ]
    used = {key for key, amount in usage.items() if compare(amount, "0") > 0 and any(part in key for part in parts)}
    if used - covered:
        raise attrs.forbidden(f"insufficient quota to consume: {','.join(sorted(used - covered))}")
    obj = attrs.obj
    scopes = [one for each in limited for one in each.get("matchScopes") or () if measured.in_scope(one, obj)]
    known = {one["scopeName"] for quota in quotas for one in scopes_of(quota) if measured.in_scope(one, obj)}
    uncovered = [one for one in scopes if one.get("scopeName") not in known]
    if uncovered:
        shown = " ".join(
            f"{{{one.get('scopeName', '')} {one.get('operator', '')} [{' '.join(one.get('values') or ())}]}}"
            for one in uncovered
        )
        raise PlainServerError(f"insufficient quota to match these scopes: [{shown}]")


def _added(attrs: Attributes, quota: Obj, used: Amounts, more: Amounts, hard: Amounts) -> Amounts:
    total = {**used, **{key: add(used[key], amount) if key in used else amount for key, amount in more.items()}}
    if attrs.subresource != "status":
        exceeded = sorted(key for key in more if compare(total[key], hard[key]) > 0)
        if exceeded:
            raise attrs.forbidden(
                f"exceeded quota: {quota['metadata']['name']}, requested: {_amounts_text(more, exceeded)}, "
                f"used: {_amounts_text(used, exceeded)}, limited: {_amounts_text(hard, exceeded)}"
            )
    return total


def _hard(quota: Obj) -> Amounts:
    """Return the limits that the quota controller has observed."""
    hard: Amounts = (quota.get("status") or {}).get("hard") or {}
    return hard


def _applies(measured: Meter, quota: Obj, obj: Obj) -> bool:
    return any(measured.measures(name) for name in _hard(quota)) and all(
        measured.in_scope(scope, obj) for scope in scopes_of(quota)
    )


def _growth(usage: Amounts, before: Amounts) -> Amounts:
    """Return the increase of usage; a decrease is left to the controller."""
    grown = {key: sub(amount, before[key]) if key in before else amount for key, amount in usage.items()}
    return {key: amount for key, amount in grown.items() if compare(amount, "0") > 0}


def _amounts_text(amounts: Amounts, names: Iterable[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names if name in amounts)


def read_limited_resources(data: bytes | None) -> list[Obj]:
    """Read which resources may be used only where a quota covers them; None stands for a missing configuration. Raises
    FileProblem if it is invalid."""
    limited: list[Obj] = (read_config(data, _CONFIGURATIONS).get("limitedResources") or []) if data else []
    errs = [required(f"limitedResources[{at}].resource") for at, one in enumerate(limited) if not one.get("resource")]
    if errs:
        raise FileProblem(aggregate_message(errs))
    return limited
