"""LIST: the current state from the watch cache, or a past revision from the history of the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from setpoint.apiserver.cache_entry import Entry, entry_of
from setpoint.apiserver.corrupt_objects import list_error
from setpoint.apiserver.negotiate import PROTOBUF, Form
from setpoint.apiserver.options import ListOptions, decode_continue, encode_continue, list_options
from setpoint.apiserver.registry import Registry, wait_for_revision
from setpoint.apiserver.rendering import LARGE_ENTRY, respond_converted, respond_list
from setpoint.apiserver.request_context import RequestContext
from setpoint.meta.errors import Expired
from setpoint.store.interface import Compacted, FutureRevision, KeyValue
from setpoint.wire.message import Answer, ObjectRequest


async def list_(ctx: RequestContext, registry: Registry, form: Form) -> Answer:
    options = await ctx.compute(list_options, ctx, False, registry)
    ctx.hold(options.fields, options.labels)
    if is_past(options):
        return await respond_list(ctx, form, registry, *await past_page(ctx, registry, options))
    await wait_for_revision(registry, options.revision)
    # resourceVersion=0 reads any state in memory, and ignores the limit.
    limit = 0 if options.revision_given and options.revision == 0 else options.limit
    namespace = ctx.target.namespace
    whole = options.labels.empty and options.fields.empty
    cache = registry.cache
    if cache.corrupt:
        raise list_error(registry.resource, cache.corrupt, bool(limit))
    if whole and not limit and not form.transform and form.media_type != PROTOBUF and not _in_process(ctx):
        encoding = registry.encoding
        meta = {"resourceVersion": str(cache.fresh_revision)}
        if not encoding.remote:
            return await respond_converted(ctx, form, encoding.list(encoding.items(cache.listed(namespace)), meta))
    if registry.encoding.remote:
        await registry.encoding.ready(_candidates(ctx, registry, options))
    fresh, remaining = cache.fresh_revision, None
    if whole:
        page, total = cache.page(namespace, limit)
        more = len(page) < total
        remaining = total - len(page)
    else:
        page, more = await select(ctx, registry, options, _candidates(ctx, registry, options), limit)
    if not more:
        return await respond_list(ctx, form, registry, page, fresh)
    token = continue_token(ctx, registry, page, fresh)
    return await respond_list(ctx, form, registry, page, fresh, token, remaining)


def _in_process(ctx: RequestContext) -> bool:
    return isinstance(ctx.request, ObjectRequest)


def _candidates(ctx: RequestContext, registry: Registry, options: ListOptions) -> Iterator[Entry]:
    """Return the entries of the namespace; if the field selector names one object, at most that one."""
    namespace, name = ctx.target.namespace, options.fields.exact("metadata.name")
    if name is None or (registry.resource.namespaced and not namespace):
        return iter(registry.cache.scan(namespace))
    entry = registry.cache.get(registry.key(namespace, name))
    return iter(() if entry is None else (entry,))


def list_prefix(ctx: RequestContext, registry: Registry) -> str:
    """Return the prefix of the keys of this list; continue tokens are relative to it and cannot leave it."""
    prefix = registry.cache.prefix
    return f"{prefix}{ctx.target.namespace}/" if ctx.target.namespace else prefix


def continue_token(ctx: RequestContext, registry: Registry, page: list[Entry], revision: int) -> str:
    return encode_continue(revision, page[-1].key[len(list_prefix(ctx, registry)) :] + "\0")


_EXAMINED = 32
"""Number of entries between two checks of the budget of the loop slice."""
_EXAMINED_COST = 0.0001
"""Approximate time in seconds to examine so many entries."""


async def select(
    ctx: RequestContext, registry: Registry, options: ListOptions, entries: Iterable[Entry], limit: int = 0
) -> tuple[list[Entry], bool]:
    """Return the entries that match the selectors, at most `limit` (0 means all), and whether some were not examined.

    The entries are examined in slices of the event loop. All are those of the revision at the time of the call: what
    an iterator has not returned is read before the loop does anything else. Entries that were not examined may match or
    not, which only the next page shows."""
    matches = None if options.labels.empty else options.labels.matches
    fields, slicer = None if options.fields.empty else options.fields.matches, registry.env.slicer
    if matches is None and fields is None and not limit:
        return list(entries), False
    rest, is_read = iter(entries), isinstance(entries, list)
    found: list[Entry] = []
    while block := list(islice(rest, _EXAMINED)):
        for number, entry in enumerate(block, 1):
            if (entry.obj_in_memory is None or fields is not None) and entry.size > LARGE_ENTRY:
                rest, is_read = rest if is_read else iter([*rest]), True
                await ctx.worker.run(entry.size, registry.encoding.live, entry)
            if (matches is None or matches(entry.obj["metadata"].get("labels") or {})) and (
                fields is None or fields(entry.fields(registry.fields_of))
            ):
                found.append(entry)
                if len(found) == limit:
                    return found, number < len(block) or next(rest, None) is not None
        if slicer.over_budget():
            rest, is_read = rest if is_read else iter([*rest]), True
            await slicer.wait(_EXAMINED_COST)
    return found, False


class Page(NamedTuple):
    entries: list[Entry]
    revision: int
    token: str = ""
    """Continue token of the next page; empty for the last page."""
    remaining: int | None = None


def is_past(options: ListOptions) -> bool:
    """Return whether one past revision is requested, and not the current state."""
    return bool(
        options.continue_token or options.match == "Exact" or (options.limit and options.revision and not options.match)
    )


async def past_page(ctx: RequestContext, registry: Registry, options: ListOptions) -> Page:
    """Return a page of a past revision, from the store."""
    prefix, limit = list_prefix(ctx, registry), options.limit
    revision, start = options.revision, ""
    if options.continue_token:
        revision, start = await ctx.compute(decode_continue, options.continue_token)
        start = prefix + start
        if revision < 0:
            # The rest of a list whose revision was compacted: the current state.
            revision = registry.cache.fresh_revision
    await wait_for_revision(registry, revision)
    whole = options.labels.empty and options.fields.empty
    try:
        page = await registry.env.store.list(prefix, start=start, limit=limit if whole else 0, revision=revision)
    except Compacted:
        raise _expired(ctx, registry, options) from None
    except FutureRevision:
        await wait_for_revision(registry, revision)
        raise
    entries = [_entry(registry, kv) for kv in page.items]
    if registry.encoding.remote:
        await registry.encoding.ready(entries)
    found, unseen = (entries, False) if whole else await select(ctx, registry, options, entries, limit)
    more = page.more or unseen
    remaining = page.total - len(found) if more and whole else None
    token = continue_token(ctx, registry, found, revision) if more and found else ""
    return Page(found, revision, token, remaining)


def _entry(registry: Registry, kv: KeyValue) -> Entry:
    """Return the cached entry if it has this revision, because it may be decoded already."""
    current = registry.cache.get(kv.key)
    if current is not None and current.revision == kv.mod_revision:
        return current
    return entry_of(kv)


def _expired(ctx: RequestContext, registry: Registry, options: ListOptions) -> Expired:
    if not options.continue_token:
        return Expired("The resourceVersion for the provided list is too old.")
    _, start = decode_continue(options.continue_token)
    error = Expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    error.continue_token = encode_continue(-1, start)
    return error
