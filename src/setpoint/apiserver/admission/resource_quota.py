"""ResourceQuota: a namespace uses no more than its quotas allow.

What a write would use is charged to the quotas' status before the object is stored, each by compare-and-swap; if the
write fails afterwards, the quota controller corrects the count. Writes in one namespace that wait for each other are
charged together, so that many at once cost one update of the quota.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from setpoint.apiserver.admission.plugin import Attributes, Obj, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.podspec.aggregate import Amounts
from setpoint.kinds.core.quota_usage import Meter, meter, scopes_of
from setpoint.meta.errors import ApiError, Conflict, NotFound, PlainServerError
from setpoint.meta.quantity import add, compare, sub

WriteUsage = Callable[[Obj, Amounts], Awaitable[object]]
"""Sets `status.used` of this quota if it is still the stored one. Raises Conflict or NotFound if it is not."""

_ATTEMPTS = 4


class _Waiter:
    """One write that waits for its charge. `lead` wakes it to do the work of its batch, `done` to go on."""

    __slots__ = ("attrs", "error", "lead", "wake")

    def __init__(self, attrs: Attributes, wake: asyncio.Future[None]) -> None:
        self.attrs = attrs
        self.wake = wake
        self.lead = False
        self.error: ApiError | None = None


class ResourceQuota(Plugin):
    name = "ResourceQuota"

    def __init__(self, reader: Reader, write_usage: WriteUsage, limited: Sequence[Obj] = ()) -> None:
        """`limited`: what may only be used where a quota speaks of it."""
        self._reader = reader
        self._write_usage = write_usage
        self._limited = limited
        self._waiting: dict[str, list[_Waiter]] = {}
        """By namespace, while one write there is at work; absent: nobody is."""

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
        me = _Waiter(attrs, asyncio.get_running_loop().create_future())
        queue = self._waiting.get(namespace)
        if queue is None:
            self._waiting[namespace] = []
            await self._lead(namespace, [me])
        else:
            queue.append(me)
            try:
                await me.wake
            except asyncio.CancelledError:
                if me.lead:
                    self._pass_on(namespace)
                elif me in queue:
                    queue.remove(me)
                raise
            if me.lead:
                batch, self._waiting[namespace] = [me, *self._waiting[namespace]], []
                await self._lead(namespace, batch)
        if me.error is not None:
            raise me.error

    async def _lead(self, namespace: str, batch: list[_Waiter]) -> None:
        settled = False
        try:
            await self._settle(namespace, batch)
            settled = True
        finally:
            if not settled:
                # Whoever led was cancelled: the others of the batch still want an answer.
                self._waiting[namespace][:0] = batch[1:]
            else:
                for waiter in batch[1:]:
                    if not waiter.wake.done():
                        waiter.wake.set_result(None)
            self._pass_on(namespace)

    def _pass_on(self, namespace: str) -> None:
        """The next in line leads the next batch; nobody waits: nobody is at work."""
        queue = self._waiting[namespace]
        while queue:
            waiter = queue.pop(0)
            if not waiter.wake.done():
                waiter.lead = True
                waiter.wake.set_result(None)
                return
        del self._waiting[namespace]

    async def _settle(self, namespace: str, batch: Sequence[_Waiter]) -> None:
        """Charge all of the batch; afterwards each has its error or none."""
        wanted: set[str] | None = None
        pending = list(batch)
        for attempt in range(_ATTEMPTS):
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
            wanted, failure = set(), None
            for quota, old, new in zip(quotas, before, used, strict=True):
                if new == old:
                    continue
                try:
                    await self._write_usage(quota, new)
                except NotFound:
                    continue
                except Conflict as error:
                    failure = error
                    wanted.add(quota["metadata"]["name"])
            if failure is None:
                return
            if attempt == _ATTEMPTS - 1:
                for waiter in pending:
                    waiter.error = failure


def charge(
    quotas: Sequence[Obj], used: Sequence[Amounts], attrs: Attributes, limited: Sequence[Obj] = ()
) -> list[Amounts]:
    """What is used of each quota if this write is made. Raises Forbidden if one does not allow it."""
    measured = meter(attrs.resource.group, attrs.resource.plural)
    assert measured is not None and attrs.obj is not None
    concerned: list[int] = []
    for index, quota in enumerate(quotas):
        if not _concerns(measured, quota, attrs.obj):
            continue
        name = quota["metadata"]["name"]
        names = [key for key in _hard(quota) if measured.measures(key)]
        missing = measured.missing(names, attrs.obj)
        if missing:
            raise attrs.forbidden(f"failed quota: {name}: {missing}")
        if any(key not in used[index] for key in names):
            raise attrs.forbidden(f"status unknown for quota: {name}, resources: {','.join(sorted(names))}")
        concerned.append(index)
    result = list(used)
    if not concerned and not limited:
        return result
    usage = measured.usage(attrs.obj, attrs.now)
    negative = sorted(key for key, amount in usage.items() if compare(amount, "0") < 0)
    if negative:
        raise attrs.forbidden(f"quota usage is negative for resource(s): {','.join(negative)}")
    growth = _growth(usage, measured.usage(attrs.old, attrs.now)) if attrs.old is not None else usage
    if limited and any(compare(amount, "0") for amount in growth.values()):
        covered = {key for index in concerned for key in _hard(quotas[index]) if measured.measures(key)}
        _check_covered(attrs, measured, limited, usage, covered, quotas)
    for index in concerned:
        quota = quotas[index]
        was_charged = attrs.old is not None and _concerns(measured, quota, attrs.old)
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
    """Raises ApiError where something is used that must not be used without a quota."""
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
    bare = [one for one in scopes if one.get("scopeName") not in known]
    if bare:
        shown = " ".join(
            f"{{{one.get('scopeName', '')} {one.get('operator', '')} [{' '.join(one.get('values') or ())}]}}"
            for one in bare
        )
        raise PlainServerError(f"insufficient quota to match these scopes: [{shown}]")


def _added(attrs: Attributes, quota: Obj, used: Amounts, more: Amounts, hard: Amounts) -> Amounts:
    total = {**used, **{key: add(used[key], amount) if key in used else amount for key, amount in more.items()}}
    if attrs.subresource != "status":
        exceeded = sorted(key for key in more if compare(total[key], hard[key]) > 0)
        if exceeded:
            raise attrs.forbidden(
                f"exceeded quota: {quota['metadata']['name']}, requested: {_show(more, exceeded)}, "
                f"used: {_show(used, exceeded)}, limited: {_show(hard, exceeded)}"
            )
    return total


def _hard(quota: Obj) -> Amounts:
    """The limits that the quota controller has taken note of."""
    hard: Amounts = (quota.get("status") or {}).get("hard") or {}
    return hard


def _concerns(measured: Meter, quota: Obj, obj: Obj) -> bool:
    return any(measured.measures(name) for name in _hard(quota)) and all(
        measured.in_scope(scope, obj) for scope in scopes_of(quota)
    )


def _growth(usage: Amounts, before: Amounts) -> Amounts:
    """Less than before frees nothing here: that is for the controller to see."""
    grown = {key: sub(amount, before[key]) if key in before else amount for key, amount in usage.items()}
    return {key: amount for key, amount in grown.items() if compare(amount, "0") > 0}


def _show(amounts: Amounts, names: Iterable[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names if name in amounts)
