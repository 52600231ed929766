"""The flags of an API server, with upstream's names: shared by every command that runs one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def _list(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _seconds(_: click.Context, __: click.Parameter, value: str) -> float:
    from setpoint.meta.times import parse_duration

    try:
        return parse_duration(value) / 1e9
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_OPTIONS = (
    click.option(
        "--port", "--secure-port", default=6443, type=click.IntRange(0, 65535), help="Port to listen on; 0 picks one."
    ),
    click.option("--bind-address", default="127.0.0.1", help="Address to listen on."),
    click.option(
        "--advertise-address", default="", help="Where others find this server.  [default: the machine's own address]"
    ),
    click.option(
        "--store", type=click.Choice(["sqlite", "memory"]), default="sqlite", help="memory forgets everything at exit."
    ),
    click.option("--token-auth-file", default="", help="CSV of token, user, uid and groups."),
    click.option("--client-ca-file", default="", help="Certificates signed by this authority are users too."),
    click.option(
        "--cert-dir",
        type=click.Path(path_type=Path),
        default=None,
        help="Where certificates are kept.  [default: DATA_DIR/pki]",
    ),
    click.option("--tls-cert-file", default="", help="Serve with this certificate instead of a made one."),
    click.option("--tls-private-key-file", default="", help="The key of --tls-cert-file."),
    click.option(
        "--authorization-mode",
        default="AlwaysAllow",
        callback=_list,
        help="Modes in order: AlwaysAllow, AlwaysDeny, RBAC.",
    ),
    click.option(
        "--anonymous-auth", type=bool, default=None, help="Let requests without credentials in as system:anonymous."
    ),
    click.option("--service-cluster-ip-range", default="10.96.0.0/12", help="Addresses for Services."),
    click.option("--service-node-port-range", default="30000-32767", help="Ports for Services of type NodePort."),
    click.option("--enable-admission-plugins", default="", callback=_list, help="Plugins besides the default ones."),
    click.option("--disable-admission-plugins", default="", callback=_list, help="Default plugins to leave out."),
    click.option(
        "--service-account-issuer",
        default="https://kubernetes.default.svc.cluster.local",
        help="Issuer of service account tokens.",
    ),
    click.option(
        "--api-audiences",
        default="",
        callback=_list,
        help="Audiences of service account tokens.  [default: the issuer]",
    ),
    click.option(
        "--etcd-compaction-interval",
        "compaction_interval",
        default="5m0s",
        callback=_seconds,
        help="How often old revisions are forgotten.",
    ),
    click.option("--event-ttl", default="1h0m0s", callback=_seconds, help="How long Events are kept."),
    click.option("--max-requests-inflight", default=400, help="Reads at once; 0 means any number."),
    click.option("--max-mutating-requests-inflight", default=200, help="Writes at once; 0 means any number."),
    click.option("--allow-privileged", type=bool, default=True, help="Let Pods be privileged."),
    click.option("--insecure-http", is_flag=True, help="Plain HTTP, for tests; loopback only."),
)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All but --data-dir, whose default is each command's own. Their names are the fields of ApiServerConfig."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
