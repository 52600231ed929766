"""`drain`, `cordon` and `uncordon`: take a node out of service for maintenance, and back."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from setpoint.cli.command import Command, Run
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import Flag, duration, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import SELECTORS, Chosen, Selection, Target, fetch, find_kind
from setpoint.cli.waiting import FOREVER
from setpoint.cli.writing import DRY_RUN, DryRun, Results, dry_run
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, Forbidden, NotFound, TooManyRequests
from setpoint.meta.goformat import aggregate, quote
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import SelectorError, parse_labels
from setpoint.meta.times import format_duration, parse_time

FLAGS: tuple[Flag, ...] = (*DRY_RUN, *SELECTORS[:1])
_MIRROR = "kubernetes.io/config.mirror"
_PAUSE, _RETRY = 1.0, 5.0


async def nodes(invocation: Invocation) -> list[Target]:
    """Return the named or matching nodes."""
    word = invocation.command.rpartition(" ")[2]
    if not invocation.args and not invocation.flags.given("selector"):
        invocation.usage(f"USAGE: {word} NODE [flags]")
    if invocation.args and invocation.flags.selector:
        invocation.usage("error: cannot specify both a node name and a --selector option")
    dry_run(invocation)
    pods = getattr(invocation.flags, "pod_selector", "")
    if pods:
        try:
            parse_labels(pods)
        except SelectorError:
            raise Failed("--pod-selector=<pod_selector> must be a valid label selector") from None
    named = [await _named(invocation, one) for one in invocation.args]
    matching = [Selection(builtin("nodes"), "", invocation.flags.selector)] if invocation.flags.selector else []
    return await fetch(invocation, Chosen(named, matching, False))


async def _named(invocation: Invocation, word: str) -> Target:
    kind, slash, name = word.partition("/")
    if not slash:
        return Target(builtin("nodes"), "", word)
    found = await find_kind(invocation, kind)
    if (found.group, found.plural) != ("", "nodes"):
        raise Failed(
            f'error: expected resource of type node, got "{found.group}/{found.version}, Resource={found.plural}"'
        )
    return Target(found, "", name)


async def set_schedulable(invocation: Invocation, found: list[Target], wanted: bool) -> None:
    """Update each node and print the result; a failure does not stop the others."""
    dry = dry_run(invocation)
    results = Results(invocation, dry)
    word = "uncordon" if wanted else "cordon"
    for target in found:
        node = target.obj or {}
        if bool((node.get("spec") or {}).get("unschedulable")) != wanted:
            results.add(node, f"already {word}ed")
            continue
        if dry is not DryRun.CLIENT:
            patch = {"spec": {"unschedulable": None if wanted else True}}
            try:
                await invocation.client.patch(
                    target.resource, target.name, patch, kind="strategic", dry_run=dry is DryRun.SERVER
                )
            except ApiError as error:
                invocation.print_err(f'error: unable to {word} node "{target.name}": {error.message}')
                continue
        results.add(node, f"{word}ed")


def _run(wanted: bool) -> Run:
    async def run(invocation: Invocation) -> None:
        await set_schedulable(invocation, await nodes(invocation), wanted)

    return run


CORDON = Command(
    "Mark node as unschedulable",
    _run(False),
    FLAGS,
    usage="NODE",
    examples="""
    setpoint cordon node-1
    """,
)
UNCORDON = Command(
    "Mark node as schedulable",
    _run(True),
    FLAGS,
    usage="NODE",
    examples="""
    setpoint uncordon node-1
    """,
)


class Verdict(NamedTuple):
    goes: bool
    warning: str = ""
    error: str = ""


class Leaving(NamedTuple):
    pods: list[Obj]
    warnings: str


_GOES, _STAYS = Verdict(True), Verdict(False)


async def leaving(invocation: Invocation, node: str) -> Leaving:
    """Return the Pods to evict. Raise Failed if Pods would be lost and the flags do not permit that."""
    found = await invocation.client.list(
        builtin("pods"),
        label_selector=invocation.flags.pod_selector,
        field_selector=f"spec.nodeName={node}",
        page_size=invocation.flags.chunk_size,
    )
    pods: list[Obj] = []
    warnings: dict[str, list[str]] = {}
    errors: dict[str, list[str]] = {}
    for pod in found.items:
        verdict = await _verdict(invocation, pod)
        where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if verdict.goes:
            pods.append(pod)
        if verdict.warning:
            warnings.setdefault(verdict.warning, []).append(where)
        if verdict.error:
            errors.setdefault(verdict.error, []).append(where)
    if errors:
        raise Failed(aggregate(f"cannot delete {why}: {', '.join(names)}" for why, names in errors.items()))
    return Leaving(pods, "; ".join(f"{why}: {', '.join(names)}" for why, names in warnings.items()))


def is_long_gone(invocation: Invocation, pod: Obj) -> bool:
    """Return whether a Pod has been terminating for longer than the wait limit."""
    limit, ended = invocation.flags.skip_wait_for_delete_timeout, pod["metadata"].get("deletionTimestamp")
    now: datetime = invocation.io.clock.now()
    return bool(limit > 0 and ended and int((now - parse_time(ended)).total_seconds()) > limit)


async def _verdict(invocation: Invocation, pod: Obj) -> Verdict:
    """Apply the filters; the last one that permits the eviction decides, and one that does not is final."""
    if is_long_gone(invocation, pod):
        return _STAYS
    over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    owner = next((one for one in pod["metadata"].get("ownerReferences") or () if one.get("controller")), None)
    if not over and owner is not None and (owner["apiVersion"], owner["kind"]) == ("apps/v1", "DaemonSet"):
        verdict = await _of_daemon_set(invocation, pod["metadata"]["namespace"], owner["name"])
        if not verdict.goes:
            return verdict
    if _MIRROR in (pod["metadata"].get("annotations") or {}):
        return _STAYS
    local = any("emptyDir" in volume for volume in (pod.get("spec") or {}).get("volumes") or ())
    if not over and local and not invocation.flags.delete_emptydir_data:
        return Verdict(False, error="Pods with local storage (use --delete-emptydir-data to override)")
    if over or owner is not None:
        return _GOES
    if invocation.flags.force:
        return Verdict(True, warning="deleting Pods that declare no controller")
    return Verdict(False, error="Pods that declare no controller (use --force to override)")


async def _of_daemon_set(invocation: Invocation, namespace: str, name: str) -> Verdict:
    try:
        await invocation.client.get(builtin("daemonsets", "apps"), name, namespace)
    except NotFound as error:
        return _GOES if invocation.flags.force else Verdict(False, error=error.message)
    except ApiError as error:
        return Verdict(False, error=error.message)
    if not invocation.flags.ignore_daemonsets:
        return Verdict(False, error="DaemonSet-managed Pods (use --ignore-daemonsets to ignore)")
    return Verdict(False, warning="ignoring DaemonSet-managed Pods")


async def run(invocation: Invocation) -> None:
    found = await nodes(invocation)
    await set_schedulable(invocation, found, False)
    dry = dry_run(invocation)
    results = Results(invocation, dry)
    failures: list[Exception] = []
    remaining: list[str] = []
    for target in found:
        try:
            await _drain(invocation, target, dry, results)
        except EXPECTED as error:
            node = quote(target.name)
            invocation.print_err(f"error: unable to drain node {node} due to error: {error}, continuing command...")
            failures.append(error)
            remaining.append(target.name)
            continue
        results.add(target.obj or {}, "drained")
    if remaining:
        invocation.print_err("There are pending nodes to be drained:")
        for name in remaining:
            invocation.print_err(f" {name}")
    raise_all(failures)


async def _drain(invocation: Invocation, target: Target, dry: DryRun, results: Results) -> None:
    pods, warnings = await leaving(invocation, target.name)
    if warnings:
        invocation.print_err(f"Warning: {warnings}")
    if dry is DryRun.CLIENT:
        for pod in pods:
            invocation.print(f"evicting pod {_where(pod)} (dry run)")
        return
    removal = _Removal(invocation, dry, results)
    try:
        await (removal.delete(pods) if invocation.flags.disable_eviction else removal.evict(pods))
    except EXPECTED as error:
        await _report_pending(invocation, target.name, error)
        raise


async def _report_pending(invocation: Invocation, node: str, error: Exception) -> None:
    try:
        pending = (await leaving(invocation, node)).pods
    except EXPECTED as another:
        invocation.print_err(f"Following errors occurred while getting the list of pods to delete:\n{another}")
        return
    if pending:
        invocation.print_err(f"There are pending pods in node {quote(node)} when an error occurred: {error}")
        for pod in pending:
            invocation.print_err(f"pod/{pod['metadata']['name']}")


class _Removal:
    """Evicts Pods from a node concurrently, within `--timeout`."""

    def __init__(self, invocation: Invocation, dry: DryRun, results: Results) -> None:
        self._invocation, self._dry, self._results = invocation, dry, results
        self._clock = invocation.io.clock
        self._end = self._clock.monotonic() + (invocation.flags.timeout or FOREVER)

    async def evict(self, pods: list[Obj]) -> None:
        """Evict the Pods. Raise Failed with all errors."""
        errors: list[str] = []

        async def evict(pod: Obj) -> None:
            try:
                await self._evict(pod)
            except Failed as error:
                errors.append(str(error))

        import asyncio  # cordon and uncordon do without an event loop

        async with asyncio.TaskGroup() as group:
            for pod in pods:
                group.create_task(evict(pod))
        if errors:
            raise Failed(aggregate(errors))

    async def delete(self, pods: list[Obj]) -> None:
        for pod in pods:
            meta = pod["metadata"]
            grace = self._invocation.flags.grace_period
            try:
                await self._invocation.client.delete(
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
        invocation, name, namespace = self._invocation, pod["metadata"]["name"], pod["metadata"]["namespace"]
        where = f"pods/{quote(name)} -n {quote(namespace)}"
        while True:
            invocation.print(f"evicting pod {namespace}/{name}{self._dry.value}")
            invocation.flush()
            if self._clock.monotonic() >= self._end:
                limit = format_duration(round(invocation.flags.timeout * 1e9))
                raise Failed(f"error when evicting {where}: global timeout reached: {limit}")
            try:
                await self._evict_once(name, namespace)
                break
            except NotFound:
                return
            except TooManyRequests as error:
                invocation.print_err(f"error when evicting {where} (will retry after 5s): {error.message}")
            except Forbidden as error:
                if not _is_terminating(error):
                    raise Failed(f"error when evicting {where}: {error.message}") from None
                if pod["metadata"].get("deletionTimestamp"):
                    break
                invocation.print_err(
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

    async def _evict_once(self, name: str, namespace: str) -> None:
        options: Obj = {}
        if self._invocation.flags.grace_period >= 0:
            options["gracePeriodSeconds"] = self._invocation.flags.grace_period
        if self._dry is DryRun.SERVER:
            options["dryRun"] = ["All"]
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        await self._invocation.client.create(
            eviction, resource=builtin("pods"), name=name, namespace=namespace, subresource="eviction"
        )

    async def _fresh(self, pod: Obj) -> Obj:
        try:
            return await self._invocation.client.get(
                builtin("pods"), pod["metadata"]["name"], pod["metadata"]["namespace"]
            )
        except ApiError:
            return pod

    async def _until_gone(self, pod: Obj, done: str) -> None:
        meta = pod["metadata"]
        while True:
            try:
                seen = await self._invocation.client.get(builtin("pods"), meta["name"], meta["namespace"])
            except NotFound:
                seen = None
            except ApiError:
                self._results.add(pod, "eviction failed" if done == "evicted" else "deletion failed")
                raise
            if seen is None or seen["metadata"].get("uid") != meta.get("uid"):
                self._results.add(pod, done)
                self._invocation.flush()
                return
            if is_long_gone(self._invocation, seen):
                limit = self._invocation.flags.skip_wait_for_delete_timeout
                name = quote(meta["name"])
                self._invocation.print(f"pod {name} has DeletionTimestamp older than {limit} seconds, skipping")
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
