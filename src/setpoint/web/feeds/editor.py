"""The conversation `editor`: files of the workspace, checks of manifests, fields of kinds, and saving of objects.

Each message of the tab is answered by one with the same `id`. A `check` ends an earlier one that is not answered yet.

    {"id": 1, "do": "files"}                                  {"id": 1, "files": [{"path": "web.yaml", "size": 120}]}
    {"id": 2, "do": "read", "path": "/home/user/web.yaml"}    {"id": 2, "text": "...", "exists": true}
    {"id": 3, "do": "write", "path": "...", "text": "..."}    {"id": 3, "saved": true}
    {"id": 4, "do": "check", "text": "...", "namespace": ""}  {"id": 4, "problems": [...], "objects": [...]}
    {"id": 5, "do": "fields", "text": "...", "line": 3, "column": 7}
                                                              {"id": 5, "fields": [...], "typed": "im", "values": []}
    {"id": 6, "do": "describe", "text": "...", "line": 3, "column": 7}
                                                              {"id": 6, "field": "spec.replicas", "about": {...}}
    {"id": 7, "do": "object", "object": {...}, "reveal": false}   {"id": 7, "text": "...", "resourceVersion": "291"}
    {"id": 8, "do": "save", "object": {...}, "before": "...", "after": "...", "takeOver": false, "dryRun": false}
                                                              {"id": 8, "outcome": "saved", "problems": [], ...}

An answer has `error`, a sentence, instead if the message cannot be answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from posixpath import normpath
from typing import Any, Final

from setpoint.meta.errors import ApiError, BadRequest
from setpoint.meta.objects import Obj
from setpoint.tasks import TaskRegistry
from setpoint.view.field_owners import field_text
from setpoint.view.schema_fields import KindSchema, SchemaField
from setpoint.view.secrets import SecretMask
from setpoint.view.yaml_cursor import Cursor, cursor_at
from setpoint.web.feed import Args, Conversation, PageContext, text_argument
from setpoint.web.feeds.yaml import find_resource
from setpoint.web.manifest_check import MAX_TEXT, check_manifest, shown_text
from setpoint.web.object_edit import save_object
from setpoint.web.schemas import Schemas
from setpoint.web.workspace import HOME, workspace_of

_MAX_RUNNING: Final = 8
_MAX_DESCRIPTION: Final = 4_000


async def run(ctx: PageContext, args: Args, conversation: Conversation) -> None:
    tasks = TaskRegistry()
    editor = _Editor(ctx)
    checking: asyncio.Task[None] | None = None
    try:
        while True:
            message = await conversation.receive()
            if not isinstance(message, Mapping) or not isinstance(message.get("id"), int):
                raise BadRequest("a message to the editor must be an object with an id")
            if len(tasks) >= _MAX_RUNNING:
                await conversation.send({"id": message["id"], "error": "too many requests at once"})
                continue
            task = tasks.start(_answer(editor, message, conversation))
            if message.get("do") == "check":
                if checking is not None:
                    checking.cancel()
                checking = task
    finally:
        await tasks.stop()


async def _answer(editor: _Editor, message: Mapping[str, Any], conversation: Conversation) -> None:
    try:
        answer = await editor.answer(message)
    except ApiError as error:
        answer = {"error": error.message}
    except ConnectionError as error:
        answer = {"error": str(error)}
    await conversation.send({"id": message["id"], **answer})


class _Editor:
    def __init__(self, ctx: PageContext) -> None:
        self._ctx = ctx
        self._schemas = Schemas(ctx.client)

    async def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a message. Raises ApiError."""
        match message.get("do"):
            case "files":
                texts = workspace_of(self._ctx).file_texts()
                return {"files": [{"path": path, "size": len(text)} for path, text in sorted(texts.items())]}
            case "read":
                text = workspace_of(self._ctx).files.read(_path(message))
                return {"text": text or "", "exists": text is not None}
            case "write":
                return self._write(_path(message), _text(message, "text"))
            case "check":
                namespace = text_argument(message, "namespace", "")
                checked = await check_manifest(self._ctx.client, self._schemas, _text(message, "text"), namespace)
                return {
                    "problems": [each._asdict() for each in checked.problems],
                    "objects": [each._asdict() for each in checked.objects],
                }
            case "fields":
                return await self._fields(_cursor(message))
            case "describe":
                return await self._describe(_cursor(message, whole_line=True))
            case "object":
                return await self._object(message)
            case "save":
                return await self._save(message)
            case _:
                raise BadRequest("the editor does not know this message")

    def _write(self, path: str, text: str) -> dict[str, Any]:
        workspace = workspace_of(self._ctx)
        files = workspace.files
        if files.is_directory(path):
            raise BadRequest(f"{path} is a directory")
        if not files.write(path, text):
            raise BadRequest("there is no space left: remove a file with `rm`")
        workspace.save()
        return {"saved": True}

    # -- fields ------------------------------------------------------------------------------------------------------

    async def _schema(self, cursor: Cursor) -> KindSchema | None:
        return await self._schemas.of(cursor.api_version, cursor.kind) if cursor.kind else None

    async def _fields(self, cursor: Cursor) -> dict[str, Any]:
        if not cursor.outer and not cursor.kind:
            return {
                "fields": [_described(each) for each in _TOP if each.name not in cursor.taken],
                "typed": cursor.name,
            }
        schema = await self._schema(cursor)
        if schema is None:
            return {"fields": [], "typed": cursor.name}
        if cursor.in_value:
            found = schema.field((*cursor.outer, cursor.name))
            return {"fields": [], "values": list(found.values) if found is not None else [], "typed": cursor.value}
        fields = [each for each in schema.fields(cursor.outer) if each.name not in cursor.taken]
        return {"fields": [_described(each) for each in fields], "typed": cursor.name}

    async def _describe(self, cursor: Cursor) -> dict[str, Any]:
        schema = await self._schema(cursor)
        path = (*cursor.outer, cursor.name) if cursor.name else cursor.outer
        found = schema.field(path) if schema is not None else None
        return {"field": field_text(path), "about": _described(found) if found is not None else None}

    # -- objects -----------------------------------------------------------------------------------------------------

    async def _object(self, message: Mapping[str, Any]) -> dict[str, Any]:
        resource, namespace, name = await find_resource(self._ctx, _mapping(message, "object"))
        found = await self._ctx.client.get(resource, name, namespace)
        obj: Obj = {"apiVersion": resource.api_version, "kind": resource.kind, **found}
        if message.get("reveal") is not True and resource.plural == "secrets" and not resource.group:
            obj = SecretMask().masked(obj)
        text = shown_text(obj, mask=False)
        if len(text) > MAX_TEXT:
            raise BadRequest(f"the object is longer than {MAX_TEXT // 1024} KiB: edit it with `kubectl edit`")
        return {"text": text, "resourceVersion": obj["metadata"].get("resourceVersion", "")}

    async def _save(self, message: Mapping[str, Any]) -> dict[str, Any]:
        resource, _, _ = await find_resource(self._ctx, _mapping(message, "object"))
        saved = await save_object(
            self._ctx.client,
            resource,
            _text(message, "before"),
            _text(message, "after"),
            schema=await self._schemas.of(resource.api_version, resource.kind),
            take_over=message.get("takeOver") is True,
            dry_run=message.get("dryRun") is True,
        )
        return {
            "outcome": saved.outcome,
            "resourceVersion": saved.resource_version,
            "problems": [each._asdict() for each in saved.problems],
            "meanwhile": [each._asdict() for each in saved.meanwhile or ()],
        }


_TOP: Final = (
    SchemaField("apiVersion", "string", True, "The group and version of the kind, such as apps/v1.", False, False),
    SchemaField("kind", "string", True, "The kind of the object, such as Deployment.", False, False),
    SchemaField("metadata", "ObjectMeta", True, "Name, namespace, labels and annotations.", True, False),
    SchemaField("spec", "object", False, "The desired state.", True, False),
)
"""The fields of an object whose kind is not known yet."""


def _described(field: SchemaField) -> dict[str, Any]:
    return {**field._asdict(), "description": field.description[:_MAX_DESCRIPTION]}


def _cursor(message: Mapping[str, Any], *, whole_line: bool = False) -> Cursor:
    """Return where the cursor of a message is; with `whole_line`, as if it was at the end of its line."""
    line, column = message.get("line"), message.get("column")
    if not isinstance(line, int) or not isinstance(column, int) or line < 1 or column < 1:
        raise BadRequest("line and column must be numbers from 1")
    return cursor_at(_text(message, "text"), line, MAX_TEXT if whole_line else column)


def _text(message: Mapping[str, Any], name: str) -> str:
    return text_argument(message, name, most=MAX_TEXT)


def _path(message: Mapping[str, Any]) -> str:
    path = text_argument(message, "path", most=1024)
    return normpath(path if path.startswith("/") else f"{HOME}/{path}")


def _mapping(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = message.get(name)
    if not isinstance(found, Mapping):
        raise BadRequest(f"argument {name} must be an object")
    return found
