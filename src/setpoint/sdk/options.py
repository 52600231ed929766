"""The command-line flags of an operator's process."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from setpoint.meta.times import TimeError, parse_duration
from setpoint.reconcile import ElectionTimes


class Address(NamedTuple):
    host: str
    """The host to bind; empty means all addresses of the machine."""
    port: int


WEBHOOKS = Address("", 9443)


class Service(NamedTuple):
    namespace: str
    name: str
    port: int = 443


@dataclass(frozen=True, slots=True)
class RunOptions:
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    install: bool = True
    dry_run: bool = False
    leader_elect: bool = False
    lease_namespace: str = ""
    times: ElectionTimes = field(default_factory=ElectionTimes)
    metrics: Address | None = None
    probes: Address | None = None
    webhooks: Address = WEBHOOKS
    webhook_url: str = ""
    webhook_service: Service | None = None
    webhook_certificates: str = ""
    grace: float = 30.0
    verbosity: int = 0
    manifests: bool = False
    """Whether to print the manifests and exit."""


def parse(operator: str, arguments: Sequence[str] | None) -> RunOptions:
    """Parse the arguments; on an error or `--help`, exit as argparse does."""
    parser = _parser(operator)
    given = parser.parse_args(arguments)
    times = ElectionTimes(
        given.leader_elect_lease_duration, given.leader_elect_renew_deadline, given.leader_elect_retry_period
    )
    if not times.lease_duration > times.renew_deadline > times.retry_period > 0:
        parser.error(
            "--leader-elect-lease-duration must be greater than the renew deadline, and that greater than the retry "
            "period, which must be positive"
        )
    return RunOptions(
        kubeconfig=given.kubeconfig,
        context=given.context,
        namespace=given.namespace,
        install=not given.no_install,
        dry_run=given.dry_run,
        leader_elect=given.leader_elect,
        lease_namespace=given.leader_elect_resource_namespace,
        times=times,
        metrics=given.metrics_bind_address,
        probes=given.health_probe_bind_address,
        webhooks=given.webhook_bind_address or WEBHOOKS,
        webhook_url=given.webhook_url,
        webhook_service=given.webhook_service,
        webhook_certificates=given.webhook_cert_dir,
        grace=given.graceful_shutdown_timeout,
        verbosity=given.verbose,
        manifests=given.print_manifests,
    )


def _parser(operator: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=operator, description=f"The operator {operator}.", allow_abbrev=False)
    add = parser.add_argument
    add(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="by default $KUBECONFIG, then .setpoint, ~/.kube/config, the service account of the Pod",
    )
    add("--context", default="", help="context of the kubeconfig; by default its current context")
    add("-n", "--namespace", default="", help="watch only this namespace; by default all namespaces")
    add(
        "--no-install",
        action="store_true",
        help="do not install the definitions of the kinds and the webhook configurations",
    )
    add(
        "--print-manifests",
        action="store_true",
        help="print the manifests to install and the ClusterRole that this operator needs, and exit",
    )
    add("--dry-run", action="store_true", help="write nothing; log the changes instead")
    add("--leader-elect", action="store_true", help="run the controllers only in the replica that holds the Lease")
    add(
        "--leader-elect-resource-namespace",
        default="",
        metavar="NAMESPACE",
        help="namespace of the Lease; by default that of the Pod or of the context",
    )
    for name, default, about in (
        ("lease-duration", "15s", "how long other replicas wait after the last renewal"),
        ("renew-deadline", "10s", "how long the leader retries a renewal before it gives up"),
        ("retry-period", "2s", "interval between two attempts"),
    ):
        add(
            f"--leader-elect-{name}",
            type=_seconds,
            default=_seconds(default),
            metavar="TIME",
            help=f"{about}; by default {default}",
        )
    add(
        "--metrics-bind-address",
        type=_address,
        default=None,
        metavar="[HOST]:PORT",
        help="address of /metrics; by default disabled",
    )
    add(
        "--health-probe-bind-address",
        type=_address,
        default=None,
        metavar="[HOST]:PORT",
        help="address of /healthz and /readyz; by default disabled",
    )
    add(
        "--webhook-bind-address",
        type=_address,
        default=WEBHOOKS,
        metavar="[HOST]:PORT",
        help="listen address of the webhooks; by default :9443",
    )
    add(
        "--webhook-url",
        default="",
        metavar="URL",
        help="URL at which the API server reaches the webhooks: https://host:port",
    )
    add(
        "--webhook-service",
        type=_service,
        default=None,
        metavar="NAMESPACE/NAME[:PORT]",
        help="Service through which the API server reaches the webhooks",
    )
    add(
        "--webhook-cert-dir",
        default="",
        metavar="DIRECTORY",
        help="directory with tls.crt, tls.key and ca.crt; by default a certificate is generated",
    )
    add(
        "--graceful-shutdown-timeout",
        type=_seconds,
        default=30.0,
        metavar="TIME",
        help="time for running reconciles to finish after a signal; by default 30s",
    )
    add("-v", "--verbose", action="count", default=0, help="log the outcome of each reconcile; -vv: log everything")
    return parser


def _seconds(text: str) -> float:
    try:
        found = parse_duration(text) / 1e9
    except TimeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found < 0:
        raise argparse.ArgumentTypeError("a duration cannot be negative")
    return found


def _address(text: str) -> Address | None:
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as :8080 or 127.0.0.1:8080")
    return Address(host.strip("[]"), int(port))


def _service(text: str) -> Service:
    where, _, port = text.partition(":")
    namespace, slash, name = where.partition("/")
    if not (namespace and slash and name) or (port and not port.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a Service such as tea-system/tea-webhook:443")
    return Service(namespace, name, int(port or 443))
