"""`drain`: cordon a node and evict its Pods."""

from __future__ import annotations

import asyncio
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import duration, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.verbs.nodes.cordon import FLAGS, nodes, set_schedulable
from setpoint.cli.verbs.nodes.leaving import is_long_gone, leaving
from setpoint.cli.waiting import FOREVER
from setpoint.cli.writing import DryRun, Results, dry_run
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, Forbidden, NotFound, TooManyRequests
from setpoint.meta.goformat import aggregate, quote
from setpoint.meta.times import format_duration

Obj = dict[str, Any]
_PAUSE, _RETRY = 1.0, 5.0


async def run(call: Invocation) -> None:
    found = await nodes(call)
    await set_schedulable(call, found, False)
    dry = dry_run(call)
    results = Results(call, dry)
    failures: list[Exception] = []
    remaining: list[str] = []
    for target in found:
        try:
            await _drain(call, target, dry, results)
        except EXPECTED as error:
            node = quote(target.name)
            call.print_err(f"error: unable to drain node {node} due to error: {error}, continuing command...")
            failures.append(error)
            remaining.append(target.name)
            continue
        results.add(target.obj or {}, "drained")
    if remaining:
        call.print_err("There are pending nodes to be drained:")
        for name in remaining:
            call.print_err(f" {name}")
    raise_all(failures)


async def _drain(call: Invocation, target: Target, dry: DryRun, results: Results) -> None:
    pods, warnings = await leaving(call, target.name)
    if warnings:
        call.print_err(f"Warning: {warnings}")
    if dry is DryRun.CLIENT:
        for pod in pods:
            call.print(f"evicting pod {_where(pod)} (dry run)")
        return
    removal = _Removal(call, dry, results)
    try:
        await (removal.delete(pods) if call.flags.disable_eviction else removal.evict(pods))
    except EXPECTED as error:
        await _tell_pending(call, target.name, error)
        raise


async def _tell_pending(call: Invocation, node: str, error: Exception) -> None:
    try:
        pending = (await leaving(call, node)).pods
    except EXPECTED as another:
        call.print_err(f"Following errors occurred while getting the list of pods to delete:\n{another}")
        return
    if pending:
        call.print_err(f"There are pending pods in node {quote(node)} when an error occurred: {error}")
        for pod in pending:
            call.print_err(f"pod/{pod['metadata']['name']}")


class _Removal:
    """Evicts Pods from a node concurrently, within `--timeout`."""

    def __init__(self, call: Invocation, dry: DryRun, results: Results) -> None:
        self._call, self._dry, self._results = call, dry, results
        self._clock = call.io.clock
        self._end = self._clock.monotonic() + (call.flags.timeout or FOREVER)

    async def evict(self, pods: list[Obj]) -> None:
        """Evict the Pods. Raise Failed with all errors."""
        errors: list[str] = []

        async def evict(pod: Obj) -> None:
            try:
                await self._evict(pod)
            except Failed as error:
                errors.append(str(error))

        async with asyncio.TaskGroup() as group:
            for pod in pods:
                group.create_task(evict(pod))
        if errors:
            raise Failed(aggregate(errors))

    async def delete(self, pods: list[Obj]) -> None:
        for pod in pods:
            meta = pod["metadata"]
            grace = self._call.flags.grace_period
            try:
                await self._call.client.delete(
                    builtin("pods"),
                    meta["name"],
                    meta["namespace"],
                    grace_period=grace if grace >= 0 else None,
                    dry_run=self._dry is DryRun.SERVER,
                )
            except NotFound:
                continue
        if self._dry is DryRun.NONE:
            for pod in pods:
                await self._until_gone(pod, "deleted")

    async def _evict(self, pod: Obj) -> None:
        call, name, namespace = self._call, pod["metadata"]["name"], pod["metadata"]["namespace"]
        where = f"pods/{quote(name)} -n {quote(namespace)}"
        while True:
            call.print(f"evicting pod {namespace}/{name}{self._dry.value}")
            call.flush()
            if self._clock.monotonic() >= self._end:
                limit = format_duration(round(call.flags.timeout * 1e9))
                raise Failed(f"error when evicting {where}: global timeout reached: {limit}")
            try:
                await self._ask(name, namespace)
                break
            except NotFound:
                return
            except TooManyRequests as error:
                call.print_err(f"error when evicting {where} (will retry after 5s): {error.message}")
            except Forbidden as error:
                if not _is_terminating(error):
                    raise Failed(f"error when evicting {where}: {error.message}") from None
                if pod["metadata"].get("deletionTimestamp"):
                    break
                call.print_err(
                    f"error when evicting pod {quote(name)} from terminating namespace {quote(namespace)} (will retry "
                    f"after 5s): {error.message}"
                )
            except ApiError as error:
                raise Failed(f"error when evicting {where}: {error.message}") from None
            await self._clock.sleep(_RETRY)
            pod = await self._fresh(pod)
        if self._dry is DryRun.NONE:
            try:
                await self._until_gone(pod, "evicted")
            except (ApiError, Failed) as error:
                raise Failed(
                    f"error when waiting for pod {quote(name)} in namespace {quote(namespace)} to terminate: {error}"
                ) from None

    async def _ask(self, name: str, namespace: str) -> None:
        options: Obj = {}
        if self._call.flags.grace_period >= 0:
            options["gracePeriodSeconds"] = self._call.flags.grace_period
        if self._dry is DryRun.SERVER:
            options["dryRun"] = ["All"]
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        await self._call.client.create(
            eviction, resource=builtin("pods"), name=name, namespace=namespace, subresource="eviction"
        )

    async def _fresh(self, pod: Obj) -> Obj:
        try:
            return await self._call.client.get(builtin("pods"), pod["metadata"]["name"], pod["metadata"]["namespace"])
        except ApiError:
            return pod

    async def _until_gone(self, pod: Obj, done: str) -> None:
        meta = pod["metadata"]
        while True:
            try:
                seen = await self._call.client.get(builtin("pods"), meta["name"], meta["namespace"])
            except NotFound:
                seen = None
            except ApiError:
                self._results.add(pod, "eviction failed" if done == "evicted" else "deletion failed")
                raise
            if seen is None or seen["metadata"].get("uid") != meta.get("uid"):
                self._results.add(pod, done)
                self._call.flush()
                return
            if is_long_gone(self._call, seen):
                limit = self._call.flags.skip_wait_for_delete_timeout
                name = quote(meta["name"])
                self._call.print(f"pod {name} has DeletionTimestamp older than {limit} seconds, skipping")
                return
            if self._clock.monotonic() >= self._end:
                raise Failed("context deadline exceeded")
            await self._clock.sleep(_PAUSE)


def _is_terminating(error: ApiError) -> bool:
    causes = (error.details or {}).get("causes") or ()
    return any(one.get("reason") == "NamespaceTerminating" for one in causes)


def _where(pod: Obj) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


COMMAND = Command(
    "Drain node in preparation for maintenance",
    run,
    (
        *FLAGS,
        switch("force", help="Continue even if there are pods that do not declare a controller."),
        switch("ignore-daemonsets", help="Ignore DaemonSet-managed pods."),
        switch("delete-emptydir-data", help="Continue even if there are pods using emptyDir: its data is lost."),
        number("grace-period", default=-1, help="Seconds that each Pod has to end by itself; negative: as it says."),
        duration("timeout", help="The length of time to wait before giving up, zero means infinite"),
        text("pod-selector", help="Label selector to filter pods on the node"),
        switch("disable-eviction", help="Delete the Pods, whatever their disruption budgets say."),
        number("skip-wait-for-delete-timeout", help="Do not wait for a Pod whose end is so many seconds ago."),
        number("chunk-size", default=500, help="How many objects a page of a list has; 0 for all at once."),
    ),
    usage="NODE",
    about="""
    The node is cordoned, and its Pods are evicted: they end as their grace periods and disruption budgets allow, and
    come up elsewhere. Pods of daemon sets and mirror Pods stay. Those that no controller would replace are in the way,
    unless --force says that they are not.
    """,
    examples="""
    setpoint drain node-1 --ignore-daemonsets

    # Even Pods that nobody will bring back
    setpoint drain node-1 --ignore-daemonsets --force --grace-period=60
    """,
)
