"""Discovery documents: the legacy ones for each group and version, and the aggregated one. Built when requested."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha512
from typing import Any, NamedTuple

import orjson

from setpoint.kinds.apiextensions.version_order import version_rank
from setpoint.kinds.catalog import Resource

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_METRICS = "metrics.k8s.io"


class RemoteVersion(NamedTuple):
    """A group version that another server serves."""

    group: str
    version: str
    group_priority: int
    version_priority: int
    resources: list[dict[str, Any]]
    """The resources in the form of aggregated discovery."""
    fresh: bool
    """Whether the server was available at the last check."""


class Discovery:
    """The documents of one set of served resources."""

    def __init__(self, resources: Iterable[Resource], address: str, remote: Iterable[RemoteVersion] = ()) -> None:
        self._by_version: dict[tuple[str, str], list[Resource]] = {}
        self._groups: dict[str, list[str]] = {}
        self._remote = {(one.group, one.version): one for one in remote}
        for resource in sorted(resources, key=_rank):
            self._by_version.setdefault((resource.group, resource.version), []).append(resource)
            versions = self._groups.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        for group, versions in self._groups.items():
            if all(resource.is_custom for version in versions for resource in self._by_version[(group, version)]):
                versions.sort(key=version_rank)
        ranked = sorted(self._remote.values(), key=lambda one: (-one.group_priority, one.group, -one.version_priority))
        for one in ranked:
            known = self._groups.setdefault(one.group, [])
            if one.version not in known:
                known.append(one.version)
        self._address = address
        self._documents: dict[str, bytes] = {}

    @property
    def groups(self) -> dict[str, list[str]]:
        """Versions by group, preferred first; the core group is ""."""
        return self._groups

    @property
    def built_in_groups(self) -> set[str]:
        """The groups with at least one built-in resource."""
        return {group for (group, _), found in self._by_version.items() if not all(one.is_custom for one in found)}

    def has(self, group: str, version: str) -> bool:
        return (group, version) in self._by_version

    def document(self, path: str) -> bytes | None:
        """Return the legacy document of a path (without a trailing slash), or None if there is none."""
        if path not in self._documents:
            document = self._build(path)
            if document is None:
                return None
            self._documents[path] = orjson.dumps(document) + b"\n"
        return self._documents[path]

    def aggregated(self, core: bool) -> tuple[bytes, str]:
        """Return the aggregated document of the core group or of all others, and its ETag."""
        key = "aggregated-core" if core else "aggregated"
        if key not in self._documents:
            items = [self._aggregate_group(group) for group in self._groups if (group == "") == core]
            document = {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {},
                "items": items,
            }
            self._documents[key] = orjson.dumps(document) + b"\n"
        body = self._documents[key]
        return body, f'"{sha512(body).hexdigest().upper()}"'

    def paths(self) -> list[str]:
        found = ["/api", "/api/v1", "/apis", "/apis/"]
        for group, versions in self._groups.items():
            if group:
                found.append(f"/apis/{group}")
                found += [f"/apis/{group}/{version}" for version in versions]
        return found

    # -- the documents --------------------------------------------------------------------------------------------

    def _build(self, path: str) -> dict[str, Any] | None:
        if path == "/api":
            return {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}],
            }
        if path == "/apis":
            groups = [_group(group, versions) for group, versions in self._groups.items() if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) == 2:
            return self._resources("", parts[1])
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in self._groups and parts[1]:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], self._groups[parts[1]])}
        if parts[0] == "apis" and len(parts) == 3:
            return self._resources(parts[1], parts[2])
        return None

    def _resources(self, group: str, version: str) -> dict[str, Any] | None:
        resources = self._by_version.get((group, version))
        if resources is None:
            return None
        listed: list[dict[str, Any]] = []
        for resource in resources:
            listed.append(_resource(resource))
            for part in resource.subresources:
                row: dict[str, Any] = {
                    "name": f"{resource.plural}/{part.name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                }
                if part.version:
                    row |= {"group": part.group, "version": part.version}
                listed.append(row | {"kind": part.kind or resource.kind, "verbs": part.verbs})
        if not all(resource.is_custom for resource in resources):
            listed.sort(key=lambda row: row["name"])
        name = f"{group}/{version}" if group else version
        document: dict[str, Any] = {"kind": "APIResourceList"}
        if group:
            document["apiVersion"] = "v1"
        return document | {"groupVersion": name, "resources": listed}

    def _aggregate_group(self, group: str) -> dict[str, Any]:
        versions = []
        for version in self._groups[group]:
            remote = self._remote.get((group, version))
            if remote is not None:
                freshness = "Current" if remote.fresh else "Stale"
                versions.append({"version": version, "resources": remote.resources, "freshness": freshness})
                continue
            resources = sorted(self._by_version[(group, version)], key=lambda resource: resource.plural)
            versions.append(
                {"version": version, "resources": [_aggregate(r) for r in resources], "freshness": "Current"}
            )
        return {"metadata": {"name": group} if group else {}, "versions": versions}


def _rank(resource: Resource) -> tuple[int, str]:
    """Sort built-in groups first in their own order, then custom ones by name, then metrics.k8s.io."""
    if resource.group == _METRICS:
        return 2, ""
    return (1, resource.group) if resource.is_custom else (0, "")


def _group(group: str, versions: list[str]) -> dict[str, Any]:
    rows = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": rows, "preferredVersion": rows[0]}


def _resource(resource: Resource) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular_name,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.discovery_verbs,
    }
    if resource.short:
        row["shortNames"] = resource.short
    if resource.categories:
        row["categories"] = resource.categories
    if "watch" in resource.verbs:
        row["storageVersionHash"] = resource.storage_version_hash
    return row


def _aggregate(resource: Resource) -> dict[str, Any]:
    # Upstream omits group and version of built-in kinds.
    own = {"group": resource.group, "version": resource.version} if resource.is_custom else {"group": "", "version": ""}
    row: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {**own, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular_name,
        "verbs": resource.discovery_verbs,
    }
    if resource.short:
        row["shortNames"] = resource.short
    if resource.categories:
        row["categories"] = resource.categories
    if resource.subresources:
        parts = resource.subresources if resource.is_custom else sorted(resource.subresources, key=lambda p: p.name)
        row["subresources"] = [
            {
                "subresource": part.name,
                "responseKind": {
                    **({"group": part.group, "version": part.version} if part.version else own),
                    "kind": part.kind or resource.kind,
                },
                "verbs": part.verbs,
            }
            for part in parts
        ]
    return row
