"""What a server is told about its audit log: flags with upstream's names and meanings."""

from __future__ import annotations

from dataclasses import dataclass, field

MODES = ("batch", "blocking", "blocking-strict")
FORMATS = ("legacy", "json")
VERSION = "audit.k8s.io/v1"


@dataclass(slots=True, eq=False, repr=False, match_args=False)
class BackendConfig:
    """What both backends have in common."""

    mode: str = "blocking"
    buffer_size: int = 10_000
    max_size: int = 1
    max_wait: float = 0.0
    throttle_enable: bool = False
    throttle_qps: float = 0.0
    throttle_burst: int = 0
    truncate_enabled: bool = False
    truncate_max_batch_size: int = 10 * 1024 * 1024
    truncate_max_event_size: int = 100 * 1024
    version: str = VERSION

    def problems(self, name: str) -> list[str]:
        found = []
        if self.mode not in MODES:
            found.append(f'invalid audit {name} mode {self.mode}, allowed modes are "{",".join(MODES)}"')
        elif self.mode == "batch":
            checks: list[tuple[str, float]] = [("buffer size", self.buffer_size), ("max batch size", self.max_size)]
            if self.throttle_enable:
                checks += [("throttle QPS", self.throttle_qps), ("throttle burst", self.throttle_burst)]
            wrong = next(((what, value) for what, value in checks if value <= 0), None)
            if wrong is not None:
                found.append(f"invalid audit batch {name} {wrong[0]} {wrong[1]:g}, must be a positive number")
        most = self.truncate_max_event_size
        if most <= 0:
            found.append(f"invalid audit truncate {name} max event size {most}, must be a positive number")
        elif self.truncate_max_batch_size < most:
            found.append(
                f"invalid audit truncate {name} max batch size {self.truncate_max_batch_size}, "
                f"must be greater than max event size ({most})"
            )
        if self.version != VERSION:
            found.append(f'invalid group version, allowed versions are ["{VERSION}"]')
        return found


def _webhook() -> BackendConfig:
    return BackendConfig(
        "batch", max_size=400, max_wait=30.0, throttle_enable=True, throttle_qps=10.0, throttle_burst=15
    )


@dataclass(slots=True, eq=False, repr=False, match_args=False)
class AuditConfig:
    policy_file: str = ""
    log_path: str = ""
    """`-` is the standard output."""
    log_maxage: int = 366
    log_maxbackup: int = 100
    log_maxsize: int = 100
    log_format: str = "json"
    log_compress: bool = False
    log: BackendConfig = field(default_factory=BackendConfig)
    webhook_config_file: str = ""
    webhook_initial_backoff: float = 10.0
    webhook: BackendConfig = field(default_factory=_webhook)

    @property
    def enabled(self) -> bool:
        return bool(self.policy_file and (self.log_path or self.webhook_config_file))

    @property
    def mentioned(self) -> bool:
        return bool(self.policy_file or self.log_path or self.webhook_config_file)

    def problems(self) -> list[str]:
        """Of the backends that are to be used."""
        found: list[str] = []
        if self.log_path:
            found += self.log.problems("log")
            if self.log_format not in FORMATS:
                allowed = ",".join(FORMATS)
                found.append(f'invalid audit log format {self.log_format}, allowed formats are "{allowed}"')
            for name in ("maxage", "maxbackup", "maxsize"):
                value = getattr(self, f"log_{name}")
                if value < 0:
                    found.append(f"--audit-log-{name} {value} can't be a negative number")
        if self.webhook_config_file:
            found += self.webhook.problems("webhook")
        return found
