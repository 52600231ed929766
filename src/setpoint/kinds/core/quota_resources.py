"""Names that a ResourceQuota may limit."""

from __future__ import annotations

from setpoint.kinds.core.resources import is_quota_huge_page, is_standard, validate_resource_name
from setpoint.meta.field import Errors, invalid


def is_standard_quota(name: str) -> bool:
    """Return whether quota supports the name: every standard resource but plain `storage`."""
    return (is_standard(name) and name != "storage") or is_quota_huge_page(name)


def validate_quota_resource_name(name: str, path: str, errs: Errors) -> None:
    validate_resource_name(name, path, errs)
    if "/" not in name and not is_standard_quota(name):
        errs.append(invalid(path, name, "must be a standard resource for quota"))
