"""The resources of a server: discovered on first use, cached, and read again when a resource is not found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Any

from setpoint.kinds.catalog import Resource, Subresource
from setpoint.meta.errors import NotAcceptable, NotFound, ServiceUnavailable
from setpoint.meta.json_codec import decode_json, encode_json

_AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
    "application/json"
)
Fetch = Callable[[str, str], Awaitable[dict[str, Any]]]
"""Returns the document at a path, in one of the accepted media types."""


class Discovery:
    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._resources: tuple[Resource, ...] | None = None
        self._by_kind: dict[tuple[str, str], Resource] = {}
        self._by_plural: dict[tuple[str, str, str], Resource] = {}
        self.missing: dict[str, str] = {}
        """The group versions (such as `metrics.k8s.io/v1`) whose resources could not be read last time, with the
        reason."""

    async def resources(self, *, fresh: bool = False) -> tuple[Resource, ...]:
        """Return all resources in the server's order: groups by priority, and their preferred versions first."""
        if self._resources is None or fresh:
            self._set_resources(await self._read())
        assert self._resources is not None
        return self._resources

    async def find(self, ref: tuple[str, str] | tuple[str, str, str]) -> Resource:
        """Find a resource by (apiVersion, kind) or (group, version, plural). Raise NotFound."""
        found = self._lookup(ref)
        if found is None:
            await self.resources(fresh=True)
            found = self._lookup(ref)
        if found is None:
            raise NotFound(_no_match(ref))
        return found

    async def refresh(self, resource: Resource) -> Resource | None:
        """Return the resource as the server has it now; None if it no longer exists."""
        await self.resources(fresh=True)
        return self._by_plural.get((resource.group, resource.version, resource.plural))

    async def search(self, name: str) -> Resource:
        """Find a resource by a name that users type: `deploy`, `deployments`, `deployment.apps`, `deployments.v1.apps`,
        in any case.

        Raise NotFound.
        """
        for fresh in (False, True):
            found = _search(await self.resources(fresh=fresh), name.lower())
            if found is not None:
                return found
        raise NotFound(f'the server doesn\'t have a resource type "{name}"')

    def _lookup(self, ref: tuple[str, str] | tuple[str, str, str]) -> Resource | None:
        return self._by_kind.get(ref) if len(ref) == 2 else self._by_plural.get(ref)

    def _set_resources(self, resources: list[Resource]) -> None:
        if self._resources is not None and list(self._resources) == resources:
            return
        self._resources = tuple(resources)
        self._by_kind = {(one.api_version, one.kind): one for one in reversed(self._resources)}
        self._by_plural = {(one.group, one.version, one.plural): one for one in self._resources}

    async def _read(self) -> list[Resource]:
        found: list[Resource] = []
        missing: dict[str, str] = {}
        for path in ("/api", "/apis"):
            try:
                document = await self._fetch(path, _AGGREGATED)
            except NotAcceptable:
                document = await self._fetch(path, "application/json")
            if document.get("kind") == "APIGroupDiscoveryList":
                found += _from_aggregated(encode_json(document))
                missing |= _stale(document)
            else:
                found += await self._from_legacy(document, missing)
        self.missing = missing
        return found

    async def _from_legacy(self, document: dict[str, Any], missing: dict[str, str]) -> list[Resource]:
        if document.get("kind") == "APIVersions":
            versions = [("", version, f"/api/{version}") for version in document.get("versions") or ()]
        else:
            versions = []
            for group in document.get("groups") or ():
                preferred = (group.get("preferredVersion") or {}).get("version")
                names = [entry["version"] for entry in group.get("versions") or ()]
                names.sort(key=lambda name: name != preferred)
                versions += [(group["name"], name, f"/apis/{group['name']}/{name}") for name in names]
        found: list[Resource] = []
        for group_name, version, path in versions:
            try:
                listed = await self._fetch(path, "application/json")
            except (ServiceUnavailable, NotFound) as error:
                # An unavailable aggregated server affects only its own resources.
                missing[f"{group_name}/{version}" if group_name else version] = str(error)
                continue
            found += _from_resource_list(group_name, version, listed)
        return found


def _stale(document: dict[str, Any]) -> dict[str, str]:
    """Return the group versions whose discovery the server reports as possibly stale."""
    stale = [
        f"{group['metadata']['name']}/{version['version']}"
        for group in document.get("items") or ()
        for version in group.get("versions") or ()
        if version.get("freshness") == "Stale"
    ]
    return {name: f"stale GroupVersion discovery: {name}" for name in stale}


@lru_cache(maxsize=8)
def _from_aggregated(encoded: bytes) -> list[Resource]:
    """Return the resources of a document, which must not be changed: repeated reads mostly return the same, and so do
    the servers of clusters in one process."""
    found: list[Resource] = []
    for group in decode_json(encoded).get("items") or ():
        name = (group.get("metadata") or {}).get("name") or ""
        for version in group.get("versions") or ():
            for entry in version.get("resources") or ():
                kind = entry.get("responseKind") or {}
                found.append(
                    Resource(
                        name,
                        version["version"],
                        kind.get("kind") or "",
                        entry["resource"],
                        entry.get("singularResource") or "",
                        entry.get("scope") == "Namespaced",
                        tuple(entry.get("shortNames") or ()),
                        tuple(entry.get("categories") or ()),
                        tuple(entry.get("verbs") or ()),
                        tuple(_subresource(part, name, version["version"]) for part in entry.get("subresources") or ()),
                    )
                )
    return found


def _subresource(part: dict[str, Any], group: str, version: str) -> Subresource:
    kind = part.get("responseKind") or {}
    of = (kind.get("group") or "", kind.get("version") or "")
    own = of in ((group, version), ("", ""))
    verbs = tuple(part.get("verbs") or ())
    return Subresource(part["subresource"], kind.get("kind") or "", verbs, *(("", "") if own else of))


def _from_resource_list(group: str, version: str, document: dict[str, Any]) -> list[Resource]:
    entries = document.get("resources") or ()
    parts: dict[str, list[Subresource]] = {}
    for entry in entries:
        parent, slash, name = entry["name"].partition("/")
        if slash:
            of = (entry.get("group") or "", entry.get("version") or "")
            parts.setdefault(parent, []).append(Subresource(name, entry["kind"], tuple(entry["verbs"]), *of))
    return [
        Resource(
            group,
            version,
            entry["kind"],
            entry["name"],
            entry.get("singularName") or "",
            bool(entry.get("namespaced")),
            tuple(entry.get("shortNames") or ()),
            tuple(entry.get("categories") or ()),
            tuple(entry.get("verbs") or ()),
            tuple(parts.get(entry["name"], ())),
        )
        for entry in entries
        if "/" not in entry["name"]
    ]


def _search(resources: Iterable[Resource], name: str) -> Resource | None:
    """Prefer full names to short ones, and earlier resources in discovery to later ones."""
    short: Resource | None = None
    for resource in resources:
        names = {resource.plural, resource.singular_name, resource.kind.lower()}
        for own in names:
            if name in (own, f"{own}.{resource.group}", f"{own}.{resource.version}.{resource.group}"):
                return resource
        if short is None and name in resource.short:
            short = resource
    return short


def _no_match(ref: tuple[str, ...]) -> str:
    if len(ref) == 2:
        return f'no matches for kind "{ref[1]}" in version "{ref[0]}"'
    group, version, plural = ref
    return f"no matches for {group}/{version}, Resource={plural}"
