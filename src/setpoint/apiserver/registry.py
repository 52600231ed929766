"""One resource of the API server in one served version: where its objects are, and how they are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from setpoint.apiserver.admission.plugin import Chain
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.encoding import Encoding
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.shared_watches import SharedWatches
from setpoint.apiserver.transactions import Transactions
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.apiserver.worker import Worker
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import Strategy
from setpoint.meta import chunked_json
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import BadRequest, Conflict, NotFound, Timeout
from setpoint.meta.goformat import quote
from setpoint.meta.names import path_segment
from setpoint.meta.objects import Obj
from setpoint.meta.schema import is_closed
from setpoint.store.interface import Store
from setpoint.tasks import Timers, within
from setpoint.wire.loop_slices import LoopSlicer

if TYPE_CHECKING:
    from setpoint.apiserver.audit.auditor import Auditor
    from setpoint.apiserver.watchers import Watchers


_SPECIAL_PATHS = {
    "replicationcontrollers": "controllers",
    "endpoints": "services/endpoints",
    "nodes": "minions",
    "services": "services/specs",
    "networking.k8s.io/ingresses": "ingress",
}
_GROUPED_PATHS = ("apiextensions.k8s.io", "apiregistration.k8s.io")


def storage_path(resource: Resource, namespace: str, name: str) -> str:
    full = f"{resource.group}/{resource.plural}" if resource.group else resource.plural
    if resource.is_custom or resource.group in _GROUPED_PATHS:
        prefix = full
    else:
        prefix = _SPECIAL_PATHS.get(full, resource.plural)
    return f"/{prefix}/{namespace}/{name}" if resource.namespaced else f"/{prefix}/{name}"


def uid_conflict(resource: Resource, namespace: str, name: str, given: str, found: str, dry_run: bool) -> Conflict:
    """Return the error for a write whose uid is not that of the stored object, if there is one."""
    path = storage_path(resource, namespace, name)
    key = path if dry_run else f"/registry{path}"
    return Conflict.of(
        resource.group,
        resource.plural,
        name,
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {given}, UID in object meta: {found}",
    )


@dataclass(frozen=True, slots=True)
class Environment:
    """The dependencies that all registries of a server share."""

    store: Store
    clock: Clock
    slicer: LoopSlicer
    ids: Ids
    admission: Chain
    authorizer: AuthorizerChain
    hooks: dict[tuple[str, str], Hooks]
    """Write hooks, by (group, plural)."""
    needs_rewrite: Callable[[str], Awaitable[bool]] | None
    """Whether the value under a key has to be written even if it does not change; None means never."""
    transactions: Transactions
    """Commits the writes of all resources."""
    timers: Timers
    """Sends the bookmarks of all watches, and ends them."""
    auditor: Auditor | None = None
    """The audit log; None if there is none."""
    watchers: Watchers | None = None
    """Remembers which clients watch which resources; None if it is not remembered."""


_NO_HOOKS = Hooks()


class Registry:
    """Identity, cache, encoding and strategy of one resource. `WritePath` writes to it."""

    def __init__(self, resource: Resource, encoding: Encoding, cache: ResourceCache, env: Environment) -> None:
        self.resource = resource
        self.encoding = encoding
        self.cache = cache
        self.env = env
        self.shared_watches = SharedWatches(cache, env.slicer)
        self.hooks = env.hooks.get((resource.group, resource.plural), _NO_HOOKS)

    @cached_property
    def strategy(self) -> Strategy:
        return self.resource.strategy

    @property
    def error_group(self) -> str:
        """API group in which invalid objects are reported: that of the stored version."""
        return self.resource.storage[0]

    def key(self, namespace: str, name: str) -> str:
        """Return the key of an object in the store. Raises BadRequest for a name that is no path segment."""
        if "%" in name or "/" in name or name in (".", ".."):
            raise BadRequest(f"Name parameter invalid: {quote(name)}: {';'.join(path_segment(name))}")
        return f"{self.cache.prefix}{namespace}/{name}" if self.resource.namespaced else self.cache.prefix + name

    def not_found(self, name: str) -> NotFound:
        return NotFound.of(self.resource.group, self.resource.plural, name)

    def get(self, namespace: str, name: str) -> Entry:
        """Return the current object. Raises NotFound."""
        entry = self.cache.get(self.key(namespace, name))
        if entry is None:
            raise self.not_found(name)
        return entry

    async def live(self, entry: Entry, worker: Worker) -> Obj:
        """Return the decoded object; a large one is decoded on a worker thread."""
        size = entry.size
        if size > chunked_json.LARGE:
            return await worker.run(size, self.encoding.live, entry)
        return self.encoding.live(entry)

    async def dump(self, form: Obj, size: int, worker: Worker) -> bytes:
        """Return an object as it is stored. If the request is large by its `size` in bytes, a worker thread encodes
        it."""
        if self.encoding.remote:
            return await self.encoding.dump_remote(form)
        if size > chunked_json.LARGE:
            return await worker.run(size, self.encoding.dump, form, large=True)
        return self.encoding.dump(form)

    def fields_of(self, entry: Entry) -> dict[str, str]:
        """Return the fields that field selectors can select."""
        obj = self.encoding.live(entry)
        meta = obj["metadata"]
        fields = {"metadata.name": meta.get("name", "")}
        if self.resource.namespaced:
            fields["metadata.namespace"] = meta.get("namespace", "")
        fields.update(self.strategy.selectable_fields(obj))
        return fields

    @cached_property
    def is_closed(self) -> bool:
        """Whether the decoder creates all containers of an object, so that none is shared with the request."""
        return is_closed(self.resource.type)


_REVISION_TIMEOUT = 3.0
"""Seconds that a read waits for a revision, as upstream."""


async def completes_within(clock: Clock, seconds: float, awaited: Coroutine[Any, Any, object]) -> bool:
    """Return whether `awaited` completes within `seconds`; otherwise it is cancelled. Its exception is raised."""
    try:
        await within(clock, seconds, awaited)
    except TimeoutError:
        return False
    return True


async def wait_for_revision(registry: Registry, revision: int) -> None:
    """Return once the cache has reached `revision`. Raises Timeout."""
    if registry.cache.fresh_revision >= revision:
        return
    if await completes_within(registry.env.clock, _REVISION_TIMEOUT, registry.env.store.wait_for_revision(revision)):
        return
    error = Timeout.of(f"Too large resource version: {revision}, current: {registry.cache.fresh_revision}", 1)
    error.details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    raise error
