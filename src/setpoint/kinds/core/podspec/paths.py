"""Rules for paths inside volumes and projections."""

from __future__ import annotations

from setpoint.meta.field import Errors, invalid

NO_BACKSTEPS = "must not contain '..'"


def has_backsteps(path: str) -> bool:
    return ".." in path and ".." in path.split("/")


def validate_no_backsteps(value: str, path: str, errs: Errors) -> None:
    if has_backsteps(value):
        errs.append(invalid(path, value, NO_BACKSTEPS))


def validate_local_descending_path(value: str, path: str, errs: Errors) -> None:
    """Validate that a path is relative and has no `..`."""
    if value.startswith("/"):
        errs.append(invalid(path, value, "must be a relative path"))
    validate_no_backsteps(value, path, errs)


def validate_local_non_reserved_path(value: str, path: str, errs: Errors) -> None:
    """Validate that a path is relative, has no `..`, and no name that starts with two dots."""
    validate_local_descending_path(value, path, errs)
    if value.startswith("..") and not value.startswith("../"):
        errs.append(invalid(path, value, "must not start with '..'"))
