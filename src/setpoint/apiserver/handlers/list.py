"""LIST: from memory when the present is asked for, from the store's history when the past is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from setpoint.apiserver.call import Call
from setpoint.apiserver.corrupt import list_refusal
from setpoint.apiserver.http.message import Answer, ObjectRequest
from setpoint.apiserver.negotiate import PROTOBUF, Form
from setpoint.apiserver.options import ListOptions, decode_continue, encode_continue, list_options
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_converted, respond_list
from setpoint.apiserver.waiting import wait_for_revision
from setpoint.apiserver.watch_cache import Entry, entry_of
from setpoint.meta.errors import Expired
from setpoint.store.interface import Compacted, FutureRevision, KeyValue


async def list_(call: Call, registry: Registry, form: Form) -> Answer:
    options = await call.work(list_options, call, False, registry)
    if is_past(options):
        return await respond_list(call, form, registry, *await past_page(call, registry, options))
    await wait_for_revision(registry, options.revision)
    # resourceVersion=0 reads whatever is in memory, whole.
    limit = 0 if options.revision_given and options.revision == 0 else options.limit
    namespace = call.target.namespace
    whole = options.labels.empty and options.fields.empty
    cache = registry.cache
    if cache.corrupt:
        raise list_refusal(registry.resource, cache.corrupt, bool(limit))
    if whole and not limit and not form.transform and form.media_type != PROTOBUF and not _in_process(call):
        encoding = registry.encoding
        meta = {"resourceVersion": str(cache.fresh)}
        if encoding.stored:
            return await respond_converted(call, form, encoding.list(cache.values(namespace), meta))
        if not encoding.remote:
            return await respond_converted(call, form, encoding.list(encoding.items(cache.scan(namespace)), meta))
    if registry.encoding.remote:
        await registry.encoding.ready(_candidates(call, registry, options))
    fresh, scanned = cache.fresh, list(_candidates(call, registry, options))
    page, more = await select(registry, options, scanned, limit)
    if not more:
        return await respond_list(call, form, registry, page, fresh)
    remaining = len(scanned) - limit if whole else None
    token = continue_token(call, registry, page, fresh)
    return await respond_list(call, form, registry, page, fresh, token, remaining)


def _in_process(call: Call) -> bool:
    return isinstance(call.request, ObjectRequest)


def _candidates(call: Call, registry: Registry, options: ListOptions) -> Iterator[Entry]:
    """Everything in the namespace; or, where the selector names one object, that one at most."""
    namespace, name = call.target.namespace, options.fields.exact("metadata.name")
    if name is None or (registry.resource.namespaced and not namespace):
        return iter(registry.cache.scan(namespace))
    entry = registry.cache.get(registry.key(namespace, name))
    return iter(() if entry is None else (entry,))


def registry_prefix(call: Call, registry: Registry) -> str:
    """What the keys of this list have in common; continue tokens are relative to it, so they cannot leave it."""
    prefix = registry.cache.prefix
    return f"{prefix}{call.target.namespace}/" if call.target.namespace else prefix


def continue_token(call: Call, registry: Registry, page: list[Entry], revision: int) -> str:
    return encode_continue(revision, page[-1].key[len(registry_prefix(call, registry)) :] + "\0")


_LOOKED_AT = 32
"""Entries that are examined before it is asked whether others should have their turn."""
_LOOKING = 0.0001
"""Seconds that so many take, about."""
_LARGE_ENTRY = 64 * 1024
"""Bytes of an entry that takes as long to decode as many others."""


async def select(
    registry: Registry, options: ListOptions, entries: Sequence[Entry], limit: int = 0
) -> tuple[list[Entry], bool]:
    """Return the entries that the selectors admit, at most `limit` (0 means all), and whether some were not examined.

    What follows the last match may match too: only the next page tells. Others have their turn in between; `entries`
    are those of one revision, and stay what they are."""
    labels, fields, turns = options.labels, options.fields, registry.env.turns
    if labels.empty and fields.empty:
        found = list(entries[:limit] if limit else entries)
        return found, len(found) < len(entries)
    found = []
    for number, entry in enumerate(entries, 1):
        if (labels.empty or labels.matches(entry.obj["metadata"].get("labels") or {})) and (
            fields.empty or fields.matches(entry.fields(registry.fields_of))
        ):
            found.append(entry)
            if len(found) == limit:
                return found, number < len(entries)
        if (not number % _LOOKED_AT or len(entry.value) > _LARGE_ENTRY) and turns.long():
            await turns.wait(_LOOKING)
    return found, False


class Page(NamedTuple):
    entries: list[Entry]
    revision: int
    token: str = ""
    """By which it goes on; empty: this is the end."""
    remaining: int | None = None


def is_past(options: ListOptions) -> bool:
    """Whether one revision is meant, and not what there is now."""
    return bool(
        options.continue_token or options.match == "Exact" or (options.limit and options.revision and not options.match)
    )


async def past_page(call: Call, registry: Registry, options: ListOptions) -> Page:
    """From the store, page by page until the limit of matching objects is reached."""
    prefix, limit = registry_prefix(call, registry), options.limit
    revision, start = options.revision, ""
    if options.continue_token:
        revision, start = decode_continue(options.continue_token)
        start = prefix + start
        if revision < 0:
            # The rest of a list whose revision is gone: as it is now.
            revision = registry.cache.fresh
    await wait_for_revision(registry, revision)
    found: list[Entry] = []
    chunk = limit if limit and options.labels.empty and options.fields.empty else 0
    try:
        page = await registry.env.store.list(prefix, start=start, limit=chunk, revision=revision)
    except Compacted:
        raise _expired(call, registry, options) from None
    except FutureRevision:
        await wait_for_revision(registry, revision)
        raise
    entries = [_entry(registry, kv) for kv in page.items]
    if registry.encoding.remote:
        await registry.encoding.ready(entries)
    found, unseen = await select(registry, options, entries, limit)
    more, remaining = page.more or unseen, None
    if more and options.labels.empty and options.fields.empty:
        remaining = page.total - len(found)
    token = continue_token(call, registry, found, revision) if more and found else ""
    return Page(found, revision, token, remaining)


def _entry(registry: Registry, kv: KeyValue) -> Entry:
    """The cache's own entry where it is the same revision, so that what was decoded is not decoded again."""
    current = registry.cache.get(kv.key)
    if current is not None and current.revision == kv.mod_revision:
        return current
    return entry_of(kv)


def _expired(call: Call, registry: Registry, options: ListOptions) -> Expired:
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
