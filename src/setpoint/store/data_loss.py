"""What proves that a database has lost acknowledged writes, in one sentence with what to do."""

from __future__ import annotations

from pathlib import Path

from setpoint.store.durable_revision import Mark
from setpoint.store.interface import StoreError

REMEDY = "restore a backup with `setpoint restore`, or start with --accept-data-loss to go on with what is left"


class DataLoss(StoreError):
    """Acknowledged revisions are not in the database, or the database is another cluster's."""


def refuse_empty(path: Path, mark: Mark | None) -> None:
    """SQLite would take an empty file for a new database, and discard its log. Raises DataLoss."""
    try:
        if path.stat().st_size:
            return
        what = "is empty"
    except FileNotFoundError:
        what = "is missing"
    except OSError:
        return  # opening it says why
    if mark is not None and mark.revision:
        raise DataLoss(f"{path} {what}, but revision {mark.revision} was acknowledged: the data is lost; {REMEDY}")
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        raise DataLoss(f"{path} {what}, but its write-ahead log {log} is not: the data is lost; {REMEDY}")


def refuse_loss(path: Path, mark: Mark, identity: int | None, revision: int) -> None:
    """Raises DataLoss if the database is not the one that `mark` was written for, or ends before it."""
    if identity != mark.identity:
        raise DataLoss(
            f"{path} is not the database that this data directory was last used with, but another cluster's or an "
            f"older one: put that one back, {REMEDY}"
        )
    if revision < mark.revision:
        raise DataLoss(
            f"{path} ends at revision {revision}, but revision {mark.revision} was acknowledged: its write-ahead log "
            f"was removed or damaged, or the file is an older copy; {REMEDY}"
        )
