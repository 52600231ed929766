"""Finding the built-in resources by what people and objects call them."""

from __future__ import annotations

from setpoint.kinds.catalog import RESOURCES, Resource

BY_KIND: dict[tuple[str, str], Resource] = {(resource.api_version, resource.kind): resource for resource in RESOURCES}
"""By (apiVersion, kind)."""
BY_PLURAL: dict[tuple[str, str, str], Resource] = {
    (resource.group, resource.version, resource.plural): resource for resource in RESOURCES
}
"""By (group, version, plural)."""


def builtin(plural: str, group: str = "", version: str = "v1") -> Resource:
    """`builtin("pods")`, `builtin("deployments", "apps")`. Raises KeyError."""
    return BY_PLURAL[(group, version, plural)]
