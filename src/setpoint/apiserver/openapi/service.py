"""The handlers of /openapi: documents are built when first requested, cached as bytes, and identified by a hash."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from hashlib import sha512
from pathlib import Path
from typing import NamedTuple

import orjson

import setpoint.kinds
from setpoint import __version__
from setpoint.apiserver.openapi import proto, schemas
from setpoint.apiserver.openapi.documents import (
    Document,
    core_operations,
    document_v2,
    document_v3,
    group_operation,
    operations_of,
    version_operation,
)
from setpoint.apiserver.openapi.operations import DocumentedResource, Operation
from setpoint.apiserver.openapi.schemas import Schema
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.server import PathHandler
from setpoint.apiserver.single_flight import SingleFlight
from setpoint.apiserver.worker import LARGE
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.kinds.tables import definition_for
from setpoint.meta.schema import Type
from setpoint.meta.times import http_date
from setpoint.wire.message import Answer, Response

_JSON = "application/json"
_PROTOBUF = "application/com.github.proto-openapi.spec.{}.v1.0+protobuf"
_DATA = ("fields.jsonl", "schema_facts.txt", "descriptions.txt")
_NOT_FOUND = b"404 page not found\n"
_PLAIN = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]


class _Custom(NamedTuple):
    resource: Resource
    schema: Schema | Type | None


class OpenApi:
    """The documents of one server: those of the built-in kinds, and those of custom kinds and other servers.

    The hash of a document is computed from its inputs. So an index needs no document, and a new custom kind invalidates
    only the documents that contain it.
    """

    def __init__(self, resources: Iterable[Resource] = RESOURCES) -> None:
        self._versions: dict[tuple[str, str], list[Resource]] = {}
        for resource in resources:
            self._versions.setdefault((resource.group, resource.version), []).append(resource)
        self._custom: dict[tuple[str, str, str], _Custom] = {}
        self._remote: dict[tuple[str, str], tuple[Document, Document]] = {}
        self._changes = 0
        """Number of changes; results that were computed before the last change are not cached."""
        self._hashes: dict[str, str] = {}
        self._built: dict[tuple[str, str], tuple[bytes, str]] = {}
        """Bytes and modification time by (document, form)."""
        self._writing: SingleFlight[tuple[str, str, int], bytes] = SingleFlight()
        self._index: bytes | None = None
        self._base = b""

    def install(self, paths: dict[str, PathHandler]) -> None:
        paths["/openapi/v2"] = self.v2
        paths["/openapi/v3"] = self.index
        paths["/openapi/v3/"] = self.v3

    # -- custom kinds ---------------------------------------------------------------------------------------------

    def add(self, resource: Resource, schema: Schema | Type | None) -> None:
        """Add or replace a custom resource, with the OpenAPI 3 schema of its definition, its Type, or None if its
        fields are unknown."""
        # A worker thread may be reading the present dict: it is replaced, never changed.
        self._custom = self._custom | {(resource.group, resource.version, resource.kind): _Custom(resource, schema)}
        self._invalidate(resource.group, resource.version)

    def remove(self, group: str, version: str, kind: str) -> None:
        if (group, version, kind) in self._custom:
            self._custom = {key: one for key, one in self._custom.items() if key != (group, version, kind)}
            self._invalidate(group, version)

    # -- other servers ----------------------------------------------------------------------------------------------

    def add_remote(self, group: str, version: str, v3_document: Document, v2_document: Document) -> None:
        """Add what another server publishes for one of its versions, in OpenAPI 3 and 2; empty means nothing."""
        if self._remote.get((group, version)) != (v3_document, v2_document):
            self._remote = self._remote | {(group, version): (v3_document, v2_document)}
            self._invalidate(group, version)

    def remove_remote(self, group: str, version: str) -> None:
        if (group, version) in self._remote:
            self._remote = {key: one for key, one in self._remote.items() if key != (group, version)}
            self._invalidate(group, version)

    def _invalidate(self, group: str, version: str) -> None:
        self._changes += 1
        self._index = None
        for path in ("v2", f"apis/{group}/{version}"):
            self._hashes.pop(path, None)
            for form in ("json", "protobuf"):
                self._built.pop((path, form), None)

    # -- requests -------------------------------------------------------------------------------------------------

    async def index(self, ctx: RequestContext) -> Answer:
        if ctx.target.path.endswith("/"):
            return Response(404)
        index = self._index
        if index is None:
            changes = self._changes
            hashes = await ctx.worker.run(LARGE, self._all_hashes)
            rows = {path: {"serverRelativeURL": _url(path, etag)} for path, etag in hashes.items()}
            index = orjson.dumps({"paths": rows})
            if changes == self._changes:
                self._hashes |= hashes
                self._index = index
        return Response(200, index, [("Content-Type", "text/plain; charset=utf-8")])

    async def v2(self, ctx: RequestContext) -> Answer:
        if ctx.target.path.endswith("/"):
            return Response(404, _NOT_FOUND, list(_PLAIN))
        return await self._serve(ctx, "v2", "v2")

    async def v3(self, ctx: RequestContext) -> Answer:
        path = ctx.target.path.removeprefix("/openapi/v3/")
        if path not in self._documents():
            return Response(404)
        return await self._serve(ctx, path, "v3")

    async def _serve(self, ctx: RequestContext, path: str, dialect: str) -> Response:
        headers = [("Vary", "Accept")]
        form = _form(ctx.request.headers.get("accept", ""), dialect)
        if not form:
            return Response(406, b"", headers)
        changes = self._changes
        known = self._hashes.get(path)
        etag = known if known is not None else await ctx.worker.run(LARGE, self._hash, path)
        if changes == self._changes:
            self._hashes[path] = etag
        headers.append(("Etag", f'"{etag}"'))
        wanted = ctx.option("hash")
        if wanted and dialect == "v3":
            if wanted != etag:
                return Response(301, b"", [*headers, ("Location", _url(path, etag))])
            # A URL with the hash of its content is immutable.
            expires = http_date(ctx.now + timedelta(days=365))
            headers += [("Cache-Control", "public, immutable"), ("Expires", expires)]
        if _matches(ctx.request.headers.get("if-none-match", ""), etag):
            return Response(304, b"", headers)
        built = self._built.get((path, form))
        if built is None:
            body = await self._writing.run(
                (path, form, changes), lambda: ctx.worker.run(LARGE, self._write, path, form)
            )
            if changes != self._changes:
                return await self._serve(ctx, path, dialect)  # the hash may be outdated
            built = self._built[(path, form)] = body, http_date(ctx.now)
        body, since = built
        media_type = _JSON if form == "json" else _PROTOBUF.format(dialect)
        return Response(200, body, [*headers, ("Content-Type", media_type), ("Last-Modified", since)])

    # -- the list of documents ----------------------------------------------------------------------------------------

    def _documents(self) -> list[str]:
        """Return the names of all OpenAPI 3 documents, sorted. Groups with only custom kinds have none of their own."""
        found = {path for path, _, _ in core_operations()}
        for group, version in self._versions:
            found |= {f"apis/{group}", f"apis/{group}/{version}"} if group else {f"api/{version}"}
        found |= {f"apis/{group}/{version}" for group, version, _ in self._custom}
        found |= {
            f"apis/{group}/{version}" for (group, version), (v3_document, _) in self._remote.items() if v3_document
        }
        return sorted(found)

    def _all_hashes(self) -> dict[str, str]:
        known = dict(self._hashes)
        return {path: known.get(path) or self._hash(path) for path in self._documents()}

    def _hash(self, path: str) -> str:
        digest = sha512(self._facts())
        digest.update(path.encode())
        for key, one in sorted(self._custom.items()):
            if path == "v2" or path == f"apis/{key[0]}/{key[1]}":
                digest.update(repr((one.resource, _fingerprint(one.schema))).encode())
        for (group, version), documents in sorted(self._remote.items()):
            if path in ("v2", f"apis/{group}/{version}"):
                digest.update(orjson.dumps(documents[0 if path != "v2" else 1]))
        return digest.hexdigest().upper()

    def _facts(self) -> bytes:
        """Return a digest of everything that the documents of built-in kinds are generated from."""
        if not self._base:
            digest = sha512(f"{__version__} {self._versions}".encode())
            for name in _DATA:
                digest.update((Path(setpoint.kinds.__file__).parent / "data" / name).read_bytes())
            self._base = digest.digest()
        return self._base

    # -- building -------------------------------------------------------------------------------------------------

    def _write(self, path: str, form: str) -> bytes:
        document = self._document_v2() if path == "v2" else self._document_v3(path)
        if form == "json":
            return orjson.dumps(document)
        return proto.document_v2(document) if path == "v2" else proto.document_v3(document)

    def _document_v2(self) -> Document:
        operations = [(path, [operation]) for _, path, operation in core_operations()]
        for group, version in self._versions:
            operations += self._of_version(group, version)
            if group:
                path, operation = group_operation(group)
                operations.append((path, [operation]))
        operations += self._of_custom(lambda resource: True)
        document = document_v2(operations, custom=self._definitions(v3=False))
        for (group, version), (_, v2_document) in sorted(self._remote.items()):
            _merge(document, v2_document, f"/apis/{group}/{version}/")
        return document

    def _document_v3(self, path: str) -> Document:
        for document, at, operation in core_operations():
            if document == path:
                return document_v3([(at, [operation])])
        group, version = _group_version(path)
        if (group, version) in self._remote:
            return self._remote[(group, version)][0]
        if not version:
            at, operation = group_operation(group)
            return document_v3([(at, [operation])])
        operations = list(self._of_version(group, version))
        operations += self._of_custom(lambda resource: (resource.group, resource.version) == (group, version))
        made = document_v3(operations, f"{group}/{version}" if group else version, custom=self._definitions(v3=True))
        if (group, version) not in self._versions:
            # Upstream generates the documents of custom kinds in another server.
            made["info"] = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
            made["components"].pop("securitySchemes", None)
        return made

    def _of_version(self, group: str, version: str) -> Iterator[tuple[str, list[Operation]]]:
        if (group, version) in self._versions:
            path, operation = version_operation(group, version)
            yield path, [operation]
            yield from operations_of(map(_served, self._versions[(group, version)]), definition_for)

    def _of_custom(self, wanted: Callable[[Resource], bool]) -> Iterator[tuple[str, list[Operation]]]:
        for one in self._custom.values():
            if wanted(one.resource):
                name = schemas.custom_definition_name(one.resource.group, one.resource.version, one.resource.kind)
                listed = schemas.custom_definition_name(
                    one.resource.group, one.resource.version, one.resource.list_kind
                )
                yield from operations_of([DocumentedResource(one.resource, name, listed, custom=True)], definition_for)

    def _definitions(self, v3: bool) -> dict[str, Schema | Type]:
        found: dict[str, Schema | Type] = {}
        for (group, version, kind), one in self._custom.items():
            resource = one.resource
            name = schemas.custom_definition_name(group, version, kind)
            if isinstance(one.schema, Type):
                found[name] = one.schema
            else:
                found[name] = schemas.custom_definition(resource, one.schema, v3)
            listed = schemas.custom_definition_name(group, version, resource.list_kind)
            found[listed] = schemas.custom_list_definition(resource, v3)
        return found


def _url(path: str, etag: str) -> str:
    return f"/openapi/v3/{path}?hash={etag}"


def _merge(document: Document, other: Document, prefix: str) -> None:
    """Add another server's paths below the prefix, and its definitions, unless the names are in use."""
    for path, item in (other.get("paths") or {}).items():
        if path.startswith(prefix) or f"{path}/" == prefix:
            document["paths"].setdefault(path, item)
    for name, definition in (other.get("definitions") or {}).items():
        document["definitions"].setdefault(name, definition)


def _served(resource: Resource) -> DocumentedResource:
    definition = definition_for(resource.group, resource.version, resource.kind)
    return DocumentedResource(resource, definition, f"{definition}List")


def _group_version(path: str) -> tuple[str, str]:
    """Return group and version of `api/v1`, `apis/apps` or `apis/apps/v1`."""
    root, first, *rest = path.split("/")
    return ("", first) if root == "api" else (first, rest[0] if rest else "")


def _fingerprint(schema: Schema | Type | None) -> str:
    """Return a fingerprint of a schema; a Type never changes, so its id suffices."""
    return str(id(schema)) if isinstance(schema, Type) else sha512(orjson.dumps(schema)).hexdigest()


def _matches(header: str, etag: str) -> bool:
    candidates = [part.strip().removeprefix("W/") for part in header.split(",")] if header else []
    return "*" in candidates or f'"{etag}"' in candidates


def _form(accept: str, dialect: str) -> str:
    """Return `json` or `protobuf`, whichever the client prefers, or "" if it accepts neither."""
    clauses = []
    for part in (accept or "*/*").split(",")[:50]:
        media_type, *params = (piece.strip() for piece in part.split(";"))
        quality = 1.0
        for param in params:
            if param.startswith("q="):
                try:
                    quality = float(param[2:])
                except ValueError:
                    quality = 0.0
        clauses.append((-quality, media_type))
    clauses.sort(key=lambda clause: clause[0])
    protobuf = _PROTOBUF.format(dialect)
    for _, media_type in clauses:
        if media_type in ("*/*", "application/*", "*/json", _JSON):
            return "json"
        if media_type in (protobuf, protobuf.replace(f"{dialect}.v1", f"{dialect}@v1")):
            return "protobuf"
    return ""
