"""Keeps the state of a fleet up to date by lists and watches of nodes and Pods.

An informer would keep every Pod; here a Pod is dropped as soon as its state was read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Literal
from weakref import WeakKeyDictionary, WeakValueDictionary

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.client.transport import Transport
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Expired, Forbidden, TooManyRequests
from setpoint.meta.objects import ObjView
from setpoint.tasks import run_all
from setpoint.web.feed import PageContext
from setpoint.web.fleet.pages import list_page
from setpoint.web.fleet.state import FleetState

log = logging.getLogger("setpoint.web")

_PAGE: Final = 100
"""Objects of one page of a list, which is read in one piece."""
_BURST: Final = 50
"""Watch events that are read in one iteration of the event loop."""
_INITIAL_BACKOFF, _MAX_BACKOFF = 0.5, 30.0
_RESET_AFTER: Final = 10.0
"""Seconds after which a watch that ends is resumed without backoff."""

_SLICE: Final = 10_000
"""Names that are compared in one iteration of the event loop."""

_What = Literal["nodes", "pods"]
_RESOURCES: Final = {"nodes": builtin("nodes"), "pods": builtin("pods")}


class FleetSource:
    """Fills a state. Only one of the clients that share a state runs at a time; the next resumes where it ended."""

    def __init__(self, state: FleetState, namespace: str = "") -> None:
        """Create a source of the Pods in a namespace, or of all if it is empty."""
        self.state = state
        self._namespace = namespace
        self._revisions: dict[_What, str] = {"nodes": "", "pods": ""}
        """The revision up to which the state is complete; empty if it must be listed."""
        self._owner = asyncio.Lock()

    async def run(self, client: Client, clock: Clock) -> None:
        """Keep the state up to date until cancelled; wait while another client does.

        Raises the error of the server if Pods cannot be listed for a reason other than that it is unavailable. Without
        the right to list nodes, the nodes are those of the Pods."""
        async with self._owner:
            nodes_listed = asyncio.Event()
            await run_all(
                self._follow_nodes(client, clock, nodes_listed), self._follow_pods(client, clock, nodes_listed)
            )

    async def _follow_nodes(self, client: Client, clock: Clock, listed: asyncio.Event) -> None:
        try:
            await self._follow("nodes", client, clock, listed.set)
        except Forbidden:
            listed.set()

    async def _follow_pods(self, client: Client, clock: Clock, nodes_listed: asyncio.Event) -> None:
        await nodes_listed.wait()
        await self._follow("pods", client, clock, self._note_loaded)

    def _note_loaded(self) -> None:
        self.state.is_loaded = True
        self.state.notify()

    async def _follow(self, what: _What, client: Client, clock: Clock, on_listed: Callable[[], None]) -> None:
        pause = _INITIAL_BACKOFF
        while True:
            started = clock.monotonic()
            try:
                if not self._revisions[what]:
                    await self._list(what, client)
                on_listed()
                await self._watch(what, client)
            except Expired:
                self._revisions[what] = ""
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.code < 500 and not isinstance(error, TooManyRequests):
                    raise
                log.warning("cannot list or watch %s for the fleet, retrying: %s", what, error)
            if clock.monotonic() - started > _RESET_AFTER:
                pause = _INITIAL_BACKOFF
                continue
            await clock.sleep(pause)
            pause = min(pause * 2, _MAX_BACKOFF)

    async def _list(self, what: _What, client: Client) -> None:
        seen: set[str] = set()
        token = ""
        namespace = self._namespace if what == "pods" else ""
        while True:
            page = await list_page(client, _RESOURCES[what], namespace, _PAGE, token)
            for each in page.items:
                self._put(what, each)
                seen.add(_name_of(each))
            token = page.continue_token
            if what == "pods":
                self.state.expected = len(seen) + page.remaining
            revision = page.resource_version
            del page
            self.state.notify()
            await asyncio.sleep(0)
            if not token:
                break
        names = [*self.state.nodes] if what == "nodes" else self.state.names()
        for start in range(0, len(names), _SLICE):
            for name in names[start : start + _SLICE]:
                if name not in seen:
                    self._remove(what, name)
            await asyncio.sleep(0)
        self._revisions[what] = revision

    async def _watch(self, what: _What, client: Client) -> None:
        namespace = self._namespace if what == "pods" else ""
        watch = client.watch(_RESOURCES[what], namespace, resource_version=self._revisions[what])
        async with watch:
            count = 0
            async for kind, obj in watch:
                if kind == "DELETED":
                    self._remove(what, _name_of(obj))
                elif kind != "BOOKMARK":
                    self._put(what, obj)
                self._revisions[what] = watch.resource_version
                count += 1
                if count % _BURST == 0:
                    await asyncio.sleep(0)

    def _put(self, what: _What, obj: ObjView) -> None:
        if what == "pods":
            self.state.put_pod(obj)
        else:
            self.state.put_node(obj)

    def _remove(self, what: _What, name: str) -> None:
        if what == "pods":
            self.state.remove_pod(name)
        else:
            self.state.remove_node(name)


_SharedKey = tuple[str, str, tuple[tuple[str, str], ...], str]
"""User, logical cluster, headers of the impersonated user, and namespace."""
_shared: WeakKeyDictionary[Transport, WeakValueDictionary[_SharedKey, FleetSource]] = WeakKeyDictionary()
"""The sources in use, by the transport of their clients: another server or another user has another one."""


def shared_source(ctx: PageContext, namespace: str) -> FleetSource:
    """Return the source that tabs of the same user share. It exists for as long as one of them holds it."""
    sender = ctx.client.sender
    sources = _shared.setdefault(sender.transport, WeakValueDictionary())
    impersonated = tuple(sender.impersonate.headers()) if sender.impersonate is not None else ()
    key = (ctx.user, ctx.cluster, impersonated, namespace)
    found = sources.get(key)
    if found is None:
        found = sources[key] = FleetSource(FleetState(), namespace)
    return found


def _name_of(obj: ObjView) -> str:
    """Return `namespace/name`, or the name of an object without a namespace."""
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])
