"""The feed `objects`: the objects of one resource as rows of a table, with the columns of the server for the kind.

Arguments: `group`, `version`, `resource`, `namespace` (empty for all), `selector` (of labels). Without a version, the
server's preferred one is used. The key of an item is `namespace/name`, and `/name` for an object of the cluster:

    {"ref": {"group": "apps", "version": "v1", "resource": "deployments", "kind": "Deployment", "namespace": "default",
             "name": "web"},
     "uid": "...", "cells": ["web", "3/3", 3, 3, "2m"], "phase": "settled", "note": "",
     "created": "2026-01-01T00:00:00Z", "labels": {"app": "web"}}

`phase` and `note` are those of the object's loop (`view/loop`). One more item, `columns`, describes the table:

    {"columns": [{"name": "Name", "type": "string", "priority": 0, "description": "..."}], "age": 4, "more": 0}

`age` is the index of the column with the age, which the page computes itself from `created`; -1 if there is none. Of
more than `MAX_OBJECTS` objects, the first are shown, and `more` is the number of the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from setpoint.client import Unreachable
from setpoint.client.client import TABLE
from setpoint.client.resources import path_of, path_segment, query_of
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, BadRequest, Expired
from setpoint.meta.objects import ObjView
from setpoint.view.loop import Related, look
from setpoint.web.feed import Args, FeedOutput, PageContext, text_argument

MAX_OBJECTS: Final = 5_000
_PAGE: Final = 250
_PAUSE, _MAX_PAUSE = 0.2, 10.0
"""Seconds before a lost watch is resumed."""
_ACCEPT: Final = f"{TABLE},application/json"
_MAX_LABELS: Final = 32
COLUMNS: Final = "columns"


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    resource = await _resource(ctx, args)
    namespace, selector = text_argument(args, "namespace", ""), text_argument(args, "selector", "", most=4096)
    try:
        path = path_of(resource, path_segment(namespace, "namespace") if namespace else "")
    except ValueError as error:
        raise BadRequest(str(error)) from None
    table = _Table(ctx, resource, path, selector, output)
    version = await table.read()
    output.synced()
    pause = _PAUSE
    while True:
        try:
            version = version or await table.read()
            version = await table.watch(version)
            pause = _PAUSE
        except Expired:
            version = ""
        except (ApiError, Unreachable) as error:
            if isinstance(error, ApiError) and error.code < 500 and error.code != 429:
                raise
            pause = min(2 * pause, _MAX_PAUSE)
        await ctx.clock.sleep(pause)


async def _resource(ctx: PageContext, args: Args) -> Resource:
    group, version = text_argument(args, "group", ""), text_argument(args, "version", "")
    plural = text_argument(args, "resource")
    if version:
        return await ctx.client.resource((group, version, plural))
    return await ctx.client.discovery.search(f"{plural}.{group}" if group else plural)


class _Table:
    """The rows of a table, kept in an output."""

    def __init__(self, ctx: PageContext, resource: Resource, path: str, selector: str, output: FeedOutput) -> None:
        self._ctx = ctx
        self._resource = resource
        self._path = path
        self._options = {"labelSelector": selector, "includeObject": "Object"}
        self._output = output
        self._shown: set[str] = set()
        self._columns: list[dict[str, Any]] = []
        self._more = 0

    async def read(self) -> str:
        """Read all rows again, and return the revision that they are of."""
        found: set[str] = set()
        version, self._more = "", 0
        async for page in self._pages():
            version = str(page["metadata"].get("resourceVersion") or "")
            self._set_columns(page.get("columnDefinitions"))
            for row in page.get("rows") or ():
                found.add(self._set(row))
            if len(found) >= MAX_OBJECTS:
                self._more = int(page["metadata"].get("remainingItemCount") or 0)
                break
        for key in self._shown - found:
            self._output.remove(key)
        self._shown = found
        self._send_columns()
        return version

    async def _pages(self) -> AsyncIterator[Mapping[str, Any]]:
        following = ""
        while True:
            query = query_of({**self._options, "limit": _PAGE, "continue": following})
            try:
                page = await self._ctx.client.sender.json("GET", self._path, query, accept=_ACCEPT)
            except Expired:
                if not following:
                    raise
                query = query_of(self._options)  # the pages took too long
                page = await self._ctx.client.sender.json("GET", self._path, query, accept=_ACCEPT)
            if page.get("kind") != "Table":
                raise BadRequest(f"the server has no table of {self._resource.plural}")
            yield page
            following = str(page["metadata"].get("continue") or "")
            if not following:
                return

    async def watch(self, version: str) -> str:
        """Follow the changes after a revision until the server ends the watch; return the revision that is reached."""
        query = query_of({**self._options, "watch": True, "resourceVersion": version, "allowWatchBookmarks": True})
        stream = await self._ctx.client.sender.watch(self._path, query, accept=_ACCEPT)
        try:
            while True:
                try:
                    kind, obj = await stream.__anext__()
                except StopAsyncIteration:
                    return version
                if kind == "ERROR":
                    raise Expired(str(obj.get("message") or "the watch has expired"))
                version = self._take(kind, obj) or version
        finally:
            stream.close()

    def _take(self, kind: str, obj: Mapping[str, Any]) -> str:
        """Take a watch event, whose object is a table of one row, and return its revision."""
        self._set_columns(obj.get("columnDefinitions"))
        version = str((obj.get("metadata") or {}).get("resourceVersion") or "")
        for row in obj.get("rows") or ():
            meta = (row.get("object") or {}).get("metadata") or {}
            version = str(meta.get("resourceVersion") or "") or version
            key = _key(meta)
            if kind == "BOOKMARK":
                continue
            if kind == "DELETED":
                self._drop(key)
            elif key in self._shown or len(self._shown) < MAX_OBJECTS:
                self._shown.add(self._set(row))
            elif kind == "ADDED":
                self._more += 1
                self._send_columns()
        return version

    def _drop(self, key: str) -> None:
        if key in self._shown:
            self._shown.discard(key)
            self._output.remove(key)
        elif self._more:
            self._more -= 1
            self._send_columns()

    def _set(self, row: Mapping[str, Any]) -> str:
        resource, obj = self._resource, row.get("object") or {}
        meta = obj.get("metadata") or {}
        key = _key(meta)
        loop = look(resource.group, resource.kind, obj, Related(self._ctx.clock.now())) if meta.get("name") else None
        self._output.set(
            key,
            {
                "ref": ref_of(resource, meta),
                "uid": meta.get("uid", ""),
                "cells": row.get("cells") or [],
                "phase": loop.phase if loop is not None else "settled",
                "note": loop.note if loop is not None else "",
                "created": meta.get("creationTimestamp") or "",
                "labels": dict(list((meta.get("labels") or {}).items())[:_MAX_LABELS]),
            },
        )
        return key

    def _set_columns(self, definitions: list[Mapping[str, Any]] | None) -> None:
        if not definitions:
            return
        columns = [{name: each.get(name, default) for name, default in _COLUMN.items()} for each in definitions if each]
        if columns != self._columns:
            self._columns = columns
            self._send_columns()

    def _send_columns(self) -> None:
        age = next((at for at, each in enumerate(self._columns) if each["name"] == "Age"), -1)
        self._output.set(COLUMNS, {"columns": self._columns, "age": age, "more": self._more})


_COLUMN: Final[dict[str, Any]] = {"name": "", "type": "string", "format": "", "priority": 0, "description": ""}


def _key(meta: ObjView) -> str:
    return f"{meta.get('namespace') or ''}/{meta.get('name') or ''}"


def ref_of(resource: Resource, meta: ObjView) -> dict[str, str]:
    """Return the identity of an object as the page uses it."""
    return {
        "group": resource.group,
        "version": resource.version,
        "resource": resource.plural,
        "kind": resource.kind,
        "namespace": str(meta.get("namespace") or ""),
        "name": str(meta.get("name") or ""),
    }
