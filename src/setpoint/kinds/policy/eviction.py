"""Eviction: a polite delete of a Pod. It is never stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.kinds.strategy import Obj
from setpoint.meta.errors import PlainServerError
from setpoint.meta.field import Errors, invalid

_IGNORE_READ_ERROR = "ignoreStoreReadErrorWithClusterBreakingPotential"


def validate_eviction(eviction: Obj, errs: Errors) -> None:
    if (eviction.get("deleteOptions") or {}).get(_IGNORE_READ_ERROR):
        text = "can not be set for pod eviction, try after removing the option"
        errs.append(invalid(f"deleteOptions.{_IGNORE_READ_ERROR}", True, text))


def delete_options(eviction: Obj, dry_run: Sequence[str]) -> dict[str, Any]:
    """Return the options to delete the Pod; the dry run of the request and of the body must not contradict each
    other."""
    options = dict(eviction.get("deleteOptions") or {})
    given = options.get("dryRun") or []
    if given and dry_run and list(dry_run) != given:
        raise PlainServerError(
            f"Non-matching dry-run options in request and content: [{' '.join(dry_run)}] and [{' '.join(given)}]"
        )
    if dry_run:
        options["dryRun"] = list(dry_run)
    return options
