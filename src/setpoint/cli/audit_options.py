"""The flags of an audit log, with upstream's names."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from setpoint.cli.flags import Flag, Values, about, decimal, duration, number, switch, text

if TYPE_CHECKING:
    from setpoint.cluster.audit_config import AuditConfig

_TO_A_LOG, _TO_A_WEBHOOK = "Audit log", "Audit webhook"
_MODES = ("batch", "blocking", "blocking-strict")


def _backend(
    group: str, name: str, mode: str, max_size: int, max_wait: float, qps: float, burst: int
) -> tuple[Flag, ...]:
    audit, batch, cut = f"audit-{name}", f"audit-{name}-batch", f"audit-{name}-truncate"
    return about(
        group,
        text(
            f"{audit}-mode",
            default=mode,
            choices=_MODES,
            help="batch, blocking or blocking-strict: whether requests wait until it is written.",
        ),
        number(f"{batch}-buffer-size", default=10_000, help="Events that may wait, in batch mode."),
        number(f"{batch}-max-size", default=max_size, help="Events in a batch at most."),
        duration(f"{batch}-max-wait", default=max_wait, help="How long a batch may take to fill."),
        switch(f"{batch}-throttle-enable", default=bool(qps), help="Limit the rate of batches."),
        decimal(f"{batch}-throttle-qps", default=qps, help="Batches per second, on average."),
        number(f"{batch}-throttle-burst", default=burst, help="Batches at once after a pause."),
        switch(f"{cut}-enabled", help="Leave objects out of events that are too large."),
        number(f"{cut}-max-batch-size", default=10 * 1024 * 1024, help="Bytes in a batch at most."),
        number(f"{cut}-max-event-size", default=100 * 1024, help="Bytes in an event at most."),
        text(f"{audit}-version", default="audit.k8s.io/v1", help="Group and version of the events."),
    )


_LOG = _backend(_TO_A_LOG, "log", "blocking", 1, 0.0, 0.0, 0)
_WEBHOOK = _backend(_TO_A_WEBHOOK, "webhook", "batch", 400, 30.0, 10.0, 15)
_OF_THE_LOG = about(
    _TO_A_LOG,
    text("audit-policy-file", help="Which requests are recorded in the audit log, and at which level."),
    text("audit-log-path", help="The file for the audit log; - is the standard output."),
    number("audit-log-maxage", default=366, help="Days for which old log files are kept; 0 is for good."),
    number("audit-log-maxbackup", default=100, help="Old log files that are kept at most; 0 means any number."),
    number("audit-log-maxsize", default=100, help="Megabytes after which a new file begins; 0 is never."),
    text("audit-log-format", default="json", choices=("legacy", "json"), help="json, or legacy: text."),
    switch("audit-log-compress", help="Compress old log files."),
)
_OF_THE_WEBHOOK = about(
    _TO_A_WEBHOOK,
    text("audit-webhook-config-file", help="A kubeconfig that says which server gets the events."),
    duration("audit-webhook-initial-backoff", default=10.0, help="The pause before the first of several new attempts."),
)
AUDIT_FLAGS: tuple[Flag, ...] = (*_OF_THE_LOG, *_LOG, *_OF_THE_WEBHOOK, *_WEBHOOK)


def audit_config(flags: Values) -> AuditConfig:
    from setpoint.cluster.audit_config import AuditConfig, BackendConfig

    def backend(of: tuple[Flag, ...]) -> BackendConfig:
        return BackendConfig(*(getattr(flags, flag.key) for flag in of))

    assert len(fields(BackendConfig)) == len(_LOG)
    own = {flag.key.removeprefix("audit_"): getattr(flags, flag.key) for flag in (*_OF_THE_LOG, *_OF_THE_WEBHOOK)}
    return AuditConfig(**own, log=backend(_LOG), webhook=backend(_WEBHOOK))
