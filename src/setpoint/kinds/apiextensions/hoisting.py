"""Field paths of what all versions share: upstream hoists it to the top level, and messages name fields accordingly."""

from __future__ import annotations

from typing import Any

_SHARED = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}


def hoisted(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the spec with what its versions share moved up. `spec` itself is not changed."""
    versions = [dict(version) for version in spec.get("versions") or ()]
    result = {**spec, "versions": versions}
    if not versions:
        return result
    result["version"] = versions[0].get("name", "")
    for name, top_name in _SHARED.items():
        first = versions[0].get(name)
        if all(version.get(name) == first for version in versions):
            if first is not None:
                result[top_name] = first
            for version in versions:
                version.pop(name, None)
    return result
