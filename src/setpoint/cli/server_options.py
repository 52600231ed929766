"""The flags of an API server, with upstream's names: shared by every command that runs one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.cli.access_options import ACCESS_FLAGS, access_config
from setpoint.cli.audit_options import AUDIT_FLAGS, audit_config
from setpoint.cli.flags import Flag, Values, about, array, duration, number, switch, text, texts

if TYPE_CHECKING:
    from setpoint.cluster.config import ApiServerConfig

NAME = text("name", help="What contexts call the cluster; by default as before, at first after its directory.")
SERVER_FLAGS: tuple[Flag, ...] = (
    *about(
        "Serving",
        number(
            "port",
            default=6443,
            least=0,
            most=65535,
            alias=("secure-port",),
            help="Port to listen on; 0 picks one.",
            common=True,
        ),
        text("bind-address", default="127.0.0.1", help="Address to listen on.", common=True),
        text("advertise-address", help="Where others find this server; by default the machine's own address."),
        text("cert-dir", help="Where certificates are kept; by default DATA_DIR/pki."),
        text("tls-cert-file", help="Serve with this certificate instead of a made one."),
        text("tls-private-key-file", help="The key of --tls-cert-file."),
        switch("insecure-http", help="Plain HTTP, for tests; loopback only."),
    ),
    *about(
        "Store",
        text(
            "store",
            default="sqlite",
            choices=("sqlite", "memory"),
            help="sqlite, or memory, which forgets all at exit.",
            common=True,
        ),
        switch("accept-data-loss", help="Start with what is left of a database that has lost acknowledged writes."),
        duration("etcd-compaction-interval", default=300.0, help="How often old revisions are forgotten."),
        duration("event-ttl", default=3600.0, help="How long Events are kept."),
        text("encryption-provider-config", help="Which resources are encrypted in the store, and with which keys."),
        switch("encryption-provider-config-automatic-reload", help="Follow changes of --encryption-provider-config."),
    ),
    *about(
        "Authentication",
        switch(
            "anonymous-auth",
            help="Let requests without credentials in as system:anonymous; "
            "by default so, unless AlwaysAllow is among the modes.",
        ),
        text("client-ca-file", help="Certificates signed by this authority are users too."),
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
        texts("enable-admission-plugins", help="Plugins besides the default ones."),
        texts("disable-admission-plugins", help="Default plugins to leave out."),
        text("admission-control-config-file", help="What plugins are told, in an AdmissionConfiguration."),
        number(
            "default-not-ready-toleration-seconds",
            default=300,
            least=0,
            help="How long Pods that say nothing else stay on a node that is not ready.",
        ),
        number(
            "default-unreachable-toleration-seconds",
            default=300,
            least=0,
            help="How long Pods that say nothing else stay on a node that cannot be reached.",
        ),
        switch("allow-privileged", default=True, help="Let Pods be privileged."),
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
            help="Share the server as FlowSchemas and PriorityLevelConfigurations say.",
        ),
        number(
            "max-requests-inflight",
            default=400,
            least=0,
            help="Reads at once. With priority and fairness, the sum of "
            "this and the next is shared between the levels; without, 0 means any number.",
        ),
        number("max-mutating-requests-inflight", default=200, least=0, help="Writes at once."),
    ),
    *about(
        "Kubelet",
        text("kubelet-certificate-authority", help="Nodes must have certificates of this authority."),
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
