"""The flags that components as processes of their own share, with upstream's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from setpoint.cli.server_options import seconds
from setpoint.meta.times import format_duration


def boolean(name: str, default: bool, text: str) -> Callable[..., Any]:
    """`--name` and `--name=false`, as upstream's."""
    return click.option(name, is_flag=False, flag_value="true", default=default, type=bool, help=text)


def duration(name: str, default: str, text: str) -> Callable[..., Any]:
    return click.option(name, default=default, callback=seconds, help=text)


_REMOTE = (
    click.option("--kubeconfig", default="", help="How to reach the server.  [default: as kubectl finds it]"),
    boolean("--leader-elect", True, "Work only while holding the Lease."),
    duration("--leader-elect-lease-duration", "15s", "How long others wait after the last sign of life."),
    duration("--leader-elect-renew-deadline", "10s", "How long a leader tries to renew before it gives up."),
    duration("--leader-elect-retry-period", "2s", "The time between two attempts."),
    click.option("--leader-elect-resource-namespace", default="kube-system", help="Where the Lease is."),
)


def remote_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_REMOTE):
        command = option(command)
    return command


def remote_config(flags: dict[str, Any]) -> Any:
    """Takes its flags out of the others."""
    from setpoint.cluster.remote import RemoteConfig
    from setpoint.reconcile import ElectionTimes

    times = ElectionTimes(
        flags.pop("leader_elect_lease_duration"),
        flags.pop("leader_elect_renew_deadline"),
        flags.pop("leader_elect_retry_period"),
    )
    return RemoteConfig(
        flags.pop("kubeconfig"),
        flags.pop("leader_elect"),
        times,
        flags.pop("leader_elect_resource_namespace"),
        flags.pop("use_service_account_credentials", False),
    )


_FROM_FILES = {
    "root_ca": ("--root-ca-file", "The certificate by which Pods know the server: goes into every namespace."),
    "service_account_private_key": ("--service-account-private-key-file", "What tokens in Secrets are signed with."),
    "cluster_signing_cert": ("--cluster-signing-cert-file", "What certificate requests are signed with."),
    "cluster_signing_key": ("--cluster-signing-key-file", "The key of --cluster-signing-cert-file."),
}
"""Settings that are texts here and files on the command line."""
_NO_DURATIONS = ("rate", "threshold", "tolerance")


def controller_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for each setting that controllers have."""
    from setpoint.controllers.options import ControllerOptions

    for field in reversed(fields(ControllerOptions)):
        command = _option(field.name, field.default)(command)
    return command


def controller_settings(flags: dict[str, Any]) -> Any:
    """Takes its flags out of the others. Raises ConfigError for a file that cannot be read."""
    from setpoint.cluster.config import ConfigError
    from setpoint.controllers.options import ControllerOptions

    settings = {field.name: flags.pop(field.name) for field in fields(ControllerOptions)}
    for name, (flag, _) in _FROM_FILES.items():
        try:
            settings[name] = Path(settings[name]).read_text(encoding="utf-8") if settings[name] else ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {flag} {settings[name]}: {error}") from None
    return ControllerOptions(**settings)


def _option(name: str, default: Any) -> Callable[..., Any]:
    if name in _FROM_FILES:
        flag, text = _FROM_FILES[name]
        return click.option(flag, name, default="", help=text)
    flag = "--" + name.replace("_", "-")
    if isinstance(default, bool):
        return click.option(flag, is_flag=False, flag_value="true", default=default, type=bool)
    if isinstance(default, float) and not name.endswith(_NO_DURATIONS):
        return click.option(flag, default=format_duration(round(default * 1e9)), callback=seconds)
    return click.option(flag, default=default, type=type(default), show_default=default != "")
