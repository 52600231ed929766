"""The flags of an API server, with upstream's names: shared by every command that runs one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def listed(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def seconds(_: click.Context, __: click.Parameter, value: str) -> float:
    from setpoint.meta.times import parse_duration

    try:
        return parse_duration(value) / 1e9
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _option(*names: str, **how: Any) -> Callable[..., Any]:
    """Defaults are shown where there is something to show."""
    return click.option(*names, show_default=bool(how.get("default")), **how)


_OPTIONS = (
    _option(
        "--port", "--secure-port", default=6443, type=click.IntRange(0, 65535), help="Port to listen on; 0 picks one."
    ),
    _option("--bind-address", default="127.0.0.1", help="Address to listen on."),
    _option(
        "--advertise-address", default="", help="Where others find this server.  [default: the machine's own address]"
    ),
    _option(
        "--store", type=click.Choice(["sqlite", "memory"]), default="sqlite", help="memory forgets everything at exit."
    ),
    _option("--token-auth-file", default="", help="CSV of token, user, uid and groups."),
    _option("--client-ca-file", default="", help="Certificates signed by this authority are users too."),
    _option(
        "--cert-dir",
        type=click.Path(path_type=Path),
        default=None,
        help="Where certificates are kept.  [default: DATA_DIR/pki]",
    ),
    _option("--tls-cert-file", default="", help="Serve with this certificate instead of a made one."),
    _option("--tls-private-key-file", default="", help="The key of --tls-cert-file."),
    _option(
        "--authorization-mode",
        default="AlwaysAllow",
        callback=listed,
        help="Modes in order: AlwaysAllow, AlwaysDeny, RBAC.",
    ),
    _option(
        "--anonymous-auth", type=bool, default=None, help="Let requests without credentials in as system:anonymous."
    ),
    _option("--service-cluster-ip-range", default="10.96.0.0/12", help="Addresses for Services."),
    _option("--service-node-port-range", default="30000-32767", help="Ports for Services of type NodePort."),
    _option("--enable-admission-plugins", default="", callback=listed, help="Plugins besides the default ones."),
    _option("--disable-admission-plugins", default="", callback=listed, help="Default plugins to leave out."),
    _option(
        "--service-account-issuer",
        default="https://kubernetes.default.svc.cluster.local",
        help="Issuer of service account tokens.",
    ),
    _option(
        "--api-audiences",
        default="",
        callback=listed,
        help="Audiences of service account tokens.  [default: the issuer]",
    ),
    _option(
        "--etcd-compaction-interval",
        "compaction_interval",
        default="5m0s",
        callback=seconds,
        help="How often old revisions are forgotten.",
    ),
    _option("--event-ttl", default="1h0m0s", callback=seconds, help="How long Events are kept."),
    _option("--max-requests-inflight", default=400, help="Reads at once; 0 means any number."),
    _option("--max-mutating-requests-inflight", default=200, help="Writes at once; 0 means any number."),
    _option("--kubelet-certificate-authority", default="", help="Nodes must have certificates of this authority."),
    _option(
        "--kubelet-client-certificate", default="", help="What to show to nodes.  [default: one of the cluster's own]"
    ),
    _option("--kubelet-client-key", default="", help="The key of --kubelet-client-certificate."),
    _option("--allow-privileged", type=bool, default=True, help="Let Pods be privileged."),
    _option("--insecure-http", is_flag=True, help="Plain HTTP, for tests; loopback only."),
)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All but --data-dir, whose default is each command's own. Their names are the fields of ApiServerConfig."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
