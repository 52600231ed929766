"""Look up built-in resources by kind or plural."""

from __future__ import annotations

from setpoint.kinds.catalog import RESOURCES, Resource

BY_KIND: dict[tuple[str, str], Resource] = {(resource.api_version, resource.kind): resource for resource in RESOURCES}
"""The built-in resources by (apiVersion, kind)."""
BY_PLURAL: dict[tuple[str, str, str], Resource] = {
    (resource.group, resource.version, resource.plural): resource for resource in RESOURCES
}
"""The built-in resources by (group, version, plural)."""


def builtin(plural: str, group: str = "", version: str = "v1") -> Resource:
    """Return a built-in resource: `builtin("pods")`, `builtin("deployments", "apps")`. Raise KeyError."""
    return BY_PLURAL[(group, version, plural)]
