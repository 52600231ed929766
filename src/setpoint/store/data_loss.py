"""Detection of acknowledged writes that are missing from a database. Each error says what is missing and what to do."""

from __future__ import annotations

from pathlib import Path

from setpoint.store.durable_revision import RevisionRecord
from setpoint.store.interface import StoreError

REMEDY = "restore a backup with `setpoint restore`, or start with --accept-data-loss to go on with what is left"


class DataLoss(StoreError):
    """Acknowledged revisions are not in the database, or the database is another cluster's."""


def check_not_empty(path: Path, record: RevisionRecord | None) -> None:
    """Raise DataLoss if the file is missing or empty though it held data.

    SQLite would take an empty file for a new database and discard its write-ahead log."""
    try:
        if path.stat().st_size:
            return
        what = "is empty"
    except FileNotFoundError:
        what = "is missing"
    except OSError:
        return  # SqliteFile.open reports the error
    if record is not None and record.revision:
        raise DataLoss(f"{path} {what}, but revision {record.revision} was acknowledged: the data is lost; {REMEDY}")
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        raise DataLoss(f"{path} {what}, but its write-ahead log {log} is not: the data is lost; {REMEDY}")


def check_not_truncated(path: Path, record: RevisionRecord, identity: int | None, revision: int) -> None:
    """Raise DataLoss if the database is not the one that `record` was written for, or ends before its revision."""
    if identity != record.identity:
        raise DataLoss(
            f"{path} is not the database that this data directory was last used with, but another cluster's or an "
            f"older one: put that one back, {REMEDY}"
        )
    if revision < record.revision:
        raise DataLoss(
            f"{path} ends at revision {revision}, but revision {record.revision} was acknowledged: its write-ahead log "
            f"was removed or damaged, or the file is an older copy; {REMEDY}"
        )
