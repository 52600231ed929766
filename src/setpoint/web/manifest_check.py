"""Checks a manifest that is being edited: the server tries to apply it, without effect, and says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from setpoint.client import Client
from setpoint.meta.body import BodyError, dump_yaml, parse_yaml
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.yaml_places import Document, Place, YamlProblem, documents
from setpoint.view.manifest_problems import ManifestProblem, problems_of, repeated_fields
from setpoint.view.schema_fields import KindSchema
from setpoint.view.secrets import SecretMask
from setpoint.web.schemas import Schemas

MAX_TEXT: Final = 512 * 1024
"""Characters of a text that is checked."""
_MAX_DOCUMENTS: Final = 50
_MANAGER: Final = "setpoint-page"
_OWN_MANAGERS: Final = ("kubectl", "setpoint", "before-first-apply")
"""Beginnings of managers whose fields a user changes without further ado: their own programs."""


class CheckedObject(NamedTuple):
    """An object of a manifest, and what applying it would do."""

    kind: str
    name: str
    namespace: str
    outcome: str
    """One of `created`, `changed`, `unchanged` and `refused`."""
    before: str
    """The object on the server, as YAML without managedFields; empty if it does not exist."""
    after: str
    """The object after applying; empty if it is refused."""


class Checked(NamedTuple):
    problems: list[ManifestProblem]
    objects: list[CheckedObject]


async def check_manifest(client: Client, schemas: Schemas, text: str, namespace: str) -> Checked:
    """Check all documents of a text. Objects without a namespace are in `namespace`."""
    if len(text) > MAX_TEXT:
        return Checked([ManifestProblem(1, 1, f"the text is longer than {MAX_TEXT // 1024} KiB")], [])
    try:
        found = documents(text)
    except YamlProblem as problem:
        return Checked([ManifestProblem(problem.line, problem.column, problem.message)], [])
    checked = Checked([], [])
    if len(found) > _MAX_DOCUMENTS:
        checked.problems.append(
            ManifestProblem(1, 1, f"only the first {_MAX_DOCUMENTS} documents are checked", is_error=False)
        )
    lines = text.split("\n")
    for document in found[:_MAX_DOCUMENTS]:
        checked.problems.extend(repeated_fields(document))
        try:
            value = parse_yaml("\n".join(lines[document.line - 1 : document.last_line]).encode())[0]
        except BodyError as error:
            checked.problems.append(ManifestProblem(document.line, 1, str(error)))
            continue
        if value is None:
            continue
        malformed = _malformed(value, document)
        if malformed is not None:
            checked.problems.append(malformed)
            continue
        await _check(client, schemas, document, value, namespace, checked)
    return checked


def _malformed(value: Any, document: Document) -> ManifestProblem | None:
    first = document.fields.get((), Place(document.line, 1, document.line))
    if not isinstance(value, Mapping):
        return ManifestProblem(first.line, first.column, "a manifest is a mapping with apiVersion, kind and metadata")
    for name in ("apiVersion", "kind"):
        if not isinstance(value.get(name), str) or not value[name]:
            return ManifestProblem(first.line, first.column, f"{name} is missing", name)
    metadata = value.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        place = document.fields.get(("metadata",), first)
        return ManifestProblem(place.line, place.column, "metadata.name is missing", "metadata.name")
    return None


async def _check(
    client: Client, schemas: Schemas, document: Document, obj: Obj, namespace: str, checked: Checked
) -> None:
    metadata = obj["metadata"]
    kind, name = obj["kind"], metadata["name"]
    where = before = after = ""
    outcome = "refused"
    schema: KindSchema | None = None
    try:
        resource = await client.resource((obj["apiVersion"], kind))
        where = (metadata.get("namespace") or namespace or "default") if resource.namespaced else ""
        obj = {**obj, "metadata": {**metadata, **({"namespace": where} if where else {})}}
        obj["metadata"].pop("managedFields", None)
        schema = await schemas.of(obj["apiVersion"], kind)
        try:
            live: Obj | None = await client.get(resource, name, where)
        except NotFound:
            live = None
        if live is not None:
            before = shown_text(live)
        result = await _tried(client, obj, document, checked)
        after = shown_text(result)
        outcome = "created" if live is None else "unchanged" if _same(live, result) else "changed"
    except ApiError as error:
        close_names = schema.close_names if schema is not None else lambda path: []
        checked.problems.extend(problems_of(error, document, obj, close_names))
    checked.objects.append(CheckedObject(kind, name, where, outcome, before, after))


async def _tried(client: Client, obj: Obj, document: Document, checked: Checked) -> Obj:
    """Return the object as it would be. Fields of other managers are reported as warnings."""
    try:
        return await client.apply(obj, field_manager=_MANAGER, dry_run=True, field_validation="Strict")
    except Conflict as error:
        found = problems_of(error, document, obj)
        others = [each for each in found if each.manager and not each.manager.startswith(_OWN_MANAGERS)]
        if not any(each.manager for each in found):
            raise
        checked.problems.extend(others)
        return await client.apply(obj, field_manager=_MANAGER, force=True, dry_run=True, field_validation="Strict")


def _same(before: Obj, after: Obj) -> bool:
    def content(obj: Obj) -> Obj:
        kept = ("managedFields", "resourceVersion", "generation")
        meta = {key: value for key, value in obj["metadata"].items() if key not in kept}
        return {**obj, "metadata": meta}

    return content(before) == content(after)


def shown_text(obj: Obj, *, mask: bool = True) -> str:
    """Return an object as YAML without managedFields, and with `mask` without the values of Secrets."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    shown: Obj = {**obj, "metadata": metadata}
    if mask and obj.get("kind") == "Secret" and obj.get("apiVersion") == "v1":
        shown = SecretMask().masked(shown)
    return dump_yaml(shown).decode()
