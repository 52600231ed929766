"""The flags of an API server, with upstream's names: shared by every command that runs one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.cli.access_options import ACCESS_FLAGS, access_config
from setpoint.cli.audit_options import AUDIT_FLAGS, audit_config
from setpoint.cli.flags import Flag, Values, about, array, duration, number, switch, text, texts

if TYPE_CHECKING:
    from setpoint.cluster.config import ApiServerConfig

NAME = text("name", help="Name of the cluster in kubeconfigs; by default the previous name, or that of its directory.")
SERVER_FLAGS: tuple[Flag, ...] = (
    *about(
        "Serving",
        number(
            "port",
            default=6443,
            least=0,
            most=65535,
            alias=("secure-port",),
            help="Port to listen on; 0 picks a free one.",
            common=True,
        ),
        text("bind-address", default="127.0.0.1", help="Address to listen on.", common=True),
        text("advertise-address", help="Address advertised to the cluster; by default that of the machine."),
        text("cert-dir", help="Directory of the certificates; by default DATA_DIR/pki."),
        text("tls-cert-file", help="Serve with this certificate instead of a generated one."),
        text("tls-private-key-file", help="The key of --tls-cert-file."),
        switch("insecure-http", help="Plain HTTP, for tests; loopback only."),
    ),
    *about(
        "Store",
        text(
            "store",
            default="sqlite",
            choices=("sqlite", "memory"),
            help="sqlite, or memory, which loses all data at exit.",
            common=True,
        ),
        switch("accept-data-loss", help="Start with what is left of a database that has lost acknowledged writes."),
        duration("etcd-compaction-interval", default=300.0, help="How often old revisions are compacted."),
        duration("event-ttl", default=3600.0, help="How long Events are retained."),
        text("encryption-provider-config", help="Which resources are encrypted in the store, and with which keys."),
        switch("encryption-provider-config-automatic-reload", help="Reload the encryption configuration on changes."),
    ),
    *about(
        "Authentication",
        switch(
            "anonymous-auth",
            help="Accept requests without credentials as system:anonymous; "
            "by default true, unless AlwaysAllow is among the modes.",
        ),
        text("client-ca-file", help="CA of client certificates that are accepted in addition."),
        text("token-auth-file", help="CSV of token, user, uid and groups."),
    ),
    *about(
        "Authorization",
        texts(
            "authorization-mode",
            default=("Node", "RBAC"),
            help="Modes in order; AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook.",
            common=True,
        ),
    ),
    *about(
        "Service account token",
        array(
            "service-account-issuer",
            default=("https://kubernetes.default.svc.cluster.local",),
            help="Issuer of service account tokens; of several, the first signs.",
        ),
        texts("api-audiences", help="Audiences of service account tokens; by default the issuer."),
    ),
    *ACCESS_FLAGS,
    *about(
        "Admission",
        texts("enable-admission-plugins", help="Plugins to enable in addition to the default ones."),
        texts("disable-admission-plugins", help="Default plugins to disable."),
        text("admission-control-config-file", help="Configuration of the plugins, in an AdmissionConfiguration."),
        number(
            "default-not-ready-toleration-seconds",
            default=300,
            least=0,
            help="Default toleration in seconds for nodes that are not ready.",
        ),
        number(
            "default-unreachable-toleration-seconds",
            default=300,
            least=0,
            help="Default toleration in seconds for unreachable nodes.",
        ),
        switch("allow-privileged", default=True, help="Allow privileged Pods."),
    ),
    *about(
        "Service",
        text("service-cluster-ip-range", default="10.96.0.0/12", help="Addresses for Services."),
        text("service-node-port-range", default="30000-32767", help="Ports for Services of type NodePort."),
    ),
    *about(
        "Load",
        switch(
            "enable-priority-and-fairness",
            default=True,
            help="Limit concurrency by FlowSchemas and PriorityLevelConfigurations.",
        ),
        number(
            "max-requests-inflight",
            default=400,
            least=0,
            help="Maximum concurrent reads. With priority and fairness, the sum of "
            "this and the next is shared between the levels; without, 0 means any number.",
        ),
        number("max-mutating-requests-inflight", default=200, least=0, help="Maximum concurrent writes."),
    ),
    *about(
        "Kubelet",
        text("kubelet-certificate-authority", help="CA that the certificates of nodes are verified with."),
        text("kubelet-client-certificate", help="What to show to nodes; by default one of the cluster's own."),
        text("kubelet-client-key", help="The key of --kubelet-client-certificate."),
    ),
    *AUDIT_FLAGS,
)
"""All flags except --name and --data-dir, whose defaults depend on the command."""


def server_config(flags: Values, data_dir: Path) -> ApiServerConfig:
    from setpoint.cluster.config import ApiServerConfig

    apart = {*AUDIT_FLAGS, *ACCESS_FLAGS}
    named = {flag.key: getattr(flags, flag.key) for flag in SERVER_FLAGS if flag not in apart}
    named["name"] = flags.name
    named["audit"] = audit_config(flags)
    named["access"] = access_config(flags)
    if flags.authorization_config and not flags.given("authorization-mode"):
        named["authorization_mode"] = []
    named["cert_dir"] = Path(flags.cert_dir) if flags.cert_dir else None
    named["anonymous_auth"] = flags.anonymous_auth if flags.given("anonymous-auth") else None
    named["compaction_interval"] = named.pop("etcd_compaction_interval")
    return ApiServerConfig(data_dir, **named)
