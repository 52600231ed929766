"""The flags of an operator's process."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from setpoint.meta.times import TimeError, parse_duration
from setpoint.reconcile import ElectionTimes


class Address(NamedTuple):
    host: str
    """Empty: all addresses of the machine."""
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
    """Print them, and that is all."""


def parse(operator: str, arguments: Sequence[str] | None) -> RunOptions:
    """Ends the process with what is wrong, or with the help that was asked for, as argparse does."""
    parser = _parser(operator)
    given = parser.parse_args(arguments)
    times = ElectionTimes(
        given.leader_elect_lease_duration, given.leader_elect_renew_deadline, given.leader_elect_retry_period
    )
    if not times.lease_duration > times.renew_deadline > times.retry_period > 0:
        parser.error("of the leader election, the lease must last longer than the deadline, and that than the period")
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
    add("--kubeconfig", default="", metavar="FILE",
        help="by default $KUBECONFIG, then .setpoint, ~/.kube/config, the service account of the Pod")  # fmt: skip
    add("--context", default="", help="of the kubeconfig; by default its current one")
    add("-n", "--namespace", default="", help="work only there; by default everywhere")
    add("--no-install", action="store_true",
        help="leave the definitions of the kinds and the configuration of the webhooks to others")  # fmt: skip
    add("--print-manifests", action="store_true",
        help="print what would be installed and the ClusterRole that this operator needs, and end")  # fmt: skip
    add("--dry-run", action="store_true", help="write nothing: log what would change")
    add("--leader-elect", action="store_true", help="of several replicas, only the one that holds the Lease works")
    add("--leader-elect-resource-namespace", default="", metavar="NAMESPACE",
        help="where the Lease is; by default the namespace of the Pod, or of the context")  # fmt: skip
    for name, default, about in (
        ("lease-duration", "15s", "how long the others wait after the last sign of life"),
        ("renew-deadline", "10s", "how long a leader tries to renew before it gives up"),
        ("retry-period", "2s", "between two attempts"),
    ):
        add(f"--leader-elect-{name}", type=_seconds, default=_seconds(default), metavar="TIME",
            help=f"{about}; by default {default}")  # fmt: skip
    add("--metrics-bind-address", type=_address, default=None, metavar="[HOST]:PORT",
        help="where /metrics is; by default nowhere")  # fmt: skip
    add("--health-probe-bind-address", type=_address, default=None, metavar="[HOST]:PORT",
        help="where /healthz and /readyz are; by default nowhere")  # fmt: skip
    add("--webhook-bind-address", type=_address, default=WEBHOOKS, metavar="[HOST]:PORT",
        help="where the webhooks listen; by default :9443")  # fmt: skip
    add("--webhook-url", default="", metavar="URL", help="where the API server finds them: https://host:port")
    add("--webhook-service", type=_service, default=None, metavar="NAMESPACE/NAME[:PORT]",
        help="or the Service that it finds them behind")  # fmt: skip
    add("--webhook-cert-dir", default="", metavar="DIRECTORY",
        help="with tls.crt, tls.key and ca.crt; by default a certificate is made")  # fmt: skip
    add("--graceful-shutdown-timeout", type=_seconds, default=30.0, metavar="TIME",
        help="for what is under way when a signal comes; by default 30s")  # fmt: skip
    add("-v", "--verbose", action="count", default=0, help="say how each reconcile ended; -vv: say everything")
    return parser


def _seconds(text: str) -> float:
    try:
        found = parse_duration(text) / 1e9
    except TimeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found < 0:
        raise argparse.ArgumentTypeError("a time cannot be negative")
    return found


def _address(text: str) -> Address | None:
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not like :8080 or 127.0.0.1:8080")
    return Address(host.strip("[]"), int(port))


def _service(text: str) -> Service:
    where, _, port = text.partition(":")
    namespace, slash, name = where.partition("/")
    if not (namespace and slash and name) or (port and not port.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not like tea-system/tea-webhook:443")
    return Service(namespace, name, int(port or 443))
