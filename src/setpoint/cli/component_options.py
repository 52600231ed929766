"""The flags that components as processes of their own share, with upstream's names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setpoint.cli.flags import Flag, Values, decimal, duration, number, switch, text, texts

if TYPE_CHECKING:
    from setpoint.cluster.component_door import DoorConfig
    from setpoint.cluster.remote import RemoteConfig
    from setpoint.controllers.options import ControllerOptions

REMOTE_FLAGS: tuple[Flag, ...] = (
    text("kubeconfig", help="How to reach the server; by default as kubectl finds it."),
    switch("leader-elect", default=True, help="Work only while holding the Lease."),
    duration("leader-elect-lease-duration", default=15.0, help="How long others wait after the last sign of life."),
    duration("leader-elect-renew-deadline", default=10.0, help="How long a leader tries to renew before it gives up."),
    duration("leader-elect-retry-period", default=2.0, help="The time between two attempts."),
    text("leader-elect-resource-namespace", default="kube-system", help="Where the Lease is."),
)


def door_flags(port: int) -> tuple[Flag, ...]:
    """Where the process can be asked how it fares; `port` is upstream's."""
    return (
        text("bind-address", default="0.0.0.0", help="Where health and metrics are served."),
        number("secure-port", default=port, least=0, most=65535, help="The port there; 0 serves nothing."),
        text("tls-cert-file", help="The certificate to serve with; by default one is made."),
        text("tls-private-key-file", help="Its key."),
        text("client-ca-file", help="Whose certificates clients may show; by default the kubeconfig's authority."),
        texts(
            "authorization-always-allow-paths",
            default=("/healthz", "/readyz", "/livez"),
            help="What anybody may read.",
        ),
    )


def door_config(flags: Values) -> DoorConfig:
    from setpoint.cluster.component_door import DoorConfig

    return DoorConfig(
        flags.bind_address,
        flags.secure_port,
        flags.tls_cert_file,
        flags.tls_private_key_file,
        flags.client_ca_file,
        tuple(flags.authorization_always_allow_paths),
    )


def remote_config(flags: Values) -> RemoteConfig:
    from setpoint.cluster.remote import RemoteConfig
    from setpoint.reconcile import ElectionTimes

    times = ElectionTimes(
        flags.leader_elect_lease_duration, flags.leader_elect_renew_deadline, flags.leader_elect_retry_period
    )
    return RemoteConfig(
        flags.kubeconfig,
        flags.leader_elect,
        times,
        flags.leader_elect_resource_namespace,
        getattr(flags, "use_service_account_credentials", False),
    )


_FROM_FILES = {
    "root_ca": ("root-ca-file", "The certificate by which Pods know the server: goes into every namespace."),
    "service_account_private_key": ("service-account-private-key-file", "What tokens in Secrets are signed with."),
    "cluster_signing_cert": ("cluster-signing-cert-file", "What certificate requests are signed with."),
    "cluster_signing_key": ("cluster-signing-key-file", "The key of --cluster-signing-cert-file."),
}
"""Settings that are texts here and files on the command line."""
_NO_DURATIONS = ("rate", "threshold", "tolerance")


def controller_flags() -> Iterator[Flag]:
    """One for each setting that controllers have."""
    from setpoint.controllers.options import ControllerOptions

    return (_flag(field.name, field.default) for field in fields(ControllerOptions))


def controller_settings(flags: Values) -> ControllerOptions:
    """Raises ConfigError for a file that cannot be read."""
    from setpoint.cluster.config import ConfigError
    from setpoint.controllers.options import ControllerOptions

    settings: dict[str, Any] = {}
    for field in fields(ControllerOptions):
        if field.name not in _FROM_FILES:
            settings[field.name] = getattr(flags, field.name)
            continue
        name = _FROM_FILES[field.name][0]
        path = getattr(flags, name.replace("-", "_"))
        try:
            settings[field.name] = Path(path).read_text(encoding="utf-8") if path else ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read --{name} {path}: {error}") from None
    return ControllerOptions(**settings)


def _flag(field: str, default: Any) -> Flag:
    if field in _FROM_FILES:
        name, about = _FROM_FILES[field]
        return text(name, help=about)
    name = field.replace("_", "-")
    if isinstance(default, bool):
        return switch(name, default=default)
    if isinstance(default, float):
        return decimal(name, default=default) if field.endswith(_NO_DURATIONS) else duration(name, default=default)
    return number(name, default=default) if isinstance(default, int) else text(name, default=default)
