"""The flags of an API server, with upstream's names: shared by every command that runs one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, Values, about, array, decimal, duration, number, switch, text, texts
from setpoint.cli.running import check_not_in_etcd, has_member

if TYPE_CHECKING:
    from setpoint.cluster.config import AccessConfig, ApiServerConfig, AuditConfig


ACCESS_FLAGS: tuple[Flag, ...] = (
    *about(
        "Service account token",
        array("service-account-key-file", help="Keys that service account tokens are verified with; may be repeated."),
        text("service-account-signing-key-file", help="The key that they are signed with; by default a made one."),
        text("service-account-jwks-uri", help="Where others find the keys, if not at this server."),
        duration("service-account-max-token-expiration", help="For how long a token may be good; by default no limit."),
        switch("service-account-extend-token-expiration", default=True, help="Let tokens of Pods be used for a year."),
    ),
    *about(
        "Authentication",
        switch("enable-bootstrap-token-auth", help="Let nodes in with tokens that Secrets in kube-system hold."),
        text("authentication-config", help="File with an AuthenticationConfiguration: issuers, what is anonymous."),
        text("authentication-token-webhook-config-file", help="Kubeconfig of a webhook that knows tokens."),
        text(
            "authentication-token-webhook-version",
            default="v1beta1",
            choices=("v1", "v1beta1"),
            help="Of the TokenReview that it is asked with.",
        ),
        duration("authentication-token-webhook-cache-ttl", default=120.0, help="How long its answers are kept."),
    ),
    *about(
        "OpenID Connect",
        text("oidc-issuer-url", help="Issuer of OpenID Connect tokens, an https URL."),
        text("oidc-client-id", help="The audience that those tokens must be for."),
        text("oidc-ca-file", help="Authority of the issuer's certificate; by default those that the machine trusts."),
        text("oidc-username-claim", default="sub", help="The claim that is the user's name."),
        text("oidc-username-prefix", help="Stands before it; - is none. By default the issuer, unless it is an email."),
        text("oidc-groups-claim", help="The claim that holds the user's groups."),
        text("oidc-groups-prefix", help="Stands before each of them."),
        texts("oidc-signing-algs", default=("RS256",), help="What tokens may be signed with: RS256, ES256, PS256, ..."),
        array("oidc-required-claim", help="A claim that tokens must have, as claim=value; repeat it for several."),
    ),
    *about(
        "Front proxy",
        text("requestheader-client-ca-file", help="CA of the proxies that may set the user of a request."),
        texts("requestheader-allowed-names", help="Common names that such proxies have; by default any."),
        texts("requestheader-username-headers", help="Headers with the user's name, such as X-Remote-User."),
        texts("requestheader-uid-headers", help="Headers with the user's uid, such as X-Remote-Uid."),
        texts("requestheader-group-headers", help="Headers with the user's groups, such as X-Remote-Group."),
        texts("requestheader-extra-headers-prefix", help="What headers with more begin with, such as X-Remote-Extra-."),
    ),
    *about(
        "Authorization",
        text("authorization-config", help="File with an AuthorizationConfiguration, instead of --authorization-mode."),
        text("authorization-webhook-config-file", help="Kubeconfig of a webhook that decides; for mode Webhook."),
        text(
            "authorization-webhook-version",
            default="v1beta1",
            choices=("v1", "v1beta1"),
            help="Of the SubjectAccessReview that it is asked with.",
        ),
        duration("authorization-webhook-cache-authorized-ttl", default=300.0, help="How long a yes is kept."),
        duration("authorization-webhook-cache-unauthorized-ttl", default=30.0, help="How long anything else is kept."),
    ),
)


def access_config(flags: Values) -> AccessConfig:
    from setpoint.cluster.config import AccessConfig

    return AccessConfig(**{flag.key: getattr(flags, flag.key) for flag in ACCESS_FLAGS})


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
    from setpoint.cluster.config import AuditConfig, BackendConfig

    def backend(of: tuple[Flag, ...]) -> BackendConfig:
        return BackendConfig(*(getattr(flags, flag.key) for flag in of))

    assert len(fields(BackendConfig)) == len(_LOG)
    own = {flag.key.removeprefix("audit_"): getattr(flags, flag.key) for flag in (*_OF_THE_LOG, *_OF_THE_WEBHOOK)}
    return AuditConfig(**own, log=backend(_LOG), webhook=backend(_WEBHOOK))


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
        texts("apiserver-cert-extra-sans", help="Further names and addresses in the generated certificate."),
        switch("insecure-http", help="Plain HTTP, for tests; loopback only."),
        duration("shutdown-delay-duration", help="How long a stopping server still answers while /readyz fails."),
    ),
    *about(
        "Store",
        text(
            "store",
            default="sqlite",
            choices=("sqlite", "memory", "etcd"),
            help="sqlite, memory, which loses all data at exit, or etcd (implied by --etcd and --etcd-servers).",
            common=True,
        ),
        text(
            "etcd",
            choices=("embedded",),
            help="embedded: run a member of etcd too, so that further machines can join.",
            common=True,
        ),
        number("etcd-client-port", default=2379, least=0, most=65535, help="Its port for clients; 0 picks a free one."),
        number("etcd-peer-port", default=2380, least=0, most=65535, help="Its port for the other members."),
        text("join", help="URL of a machine of the cluster to join: become one more control plane.", common=True),
        text("token", help="The token to join with, from `setpoint token create`.", common=True),
        texts("etcd-servers", help="URLs of the members of etcd, separated by commas."),
        text("etcd-cafile", help="Authority of etcd's serving certificates."),
        text("etcd-certfile", help="Client certificate for etcd."),
        text("etcd-keyfile", help="The key of --etcd-certfile."),
        text("etcd-prefix", default="/registry", help="Prefix of all keys in etcd."),
        switch("accept-data-loss", help="Start with what is left of a database that has lost acknowledged writes."),
        duration("backup-interval", help="How often a backup is written; by default never."),
        number("backup-keep", default=24, least=1, help="How many of these backups are kept."),
        text("backup-dir", help="Directory of these backups; by default DATA_DIR/backups."),
        duration(
            "history-retention",
            help="How long compacted changes are kept in DATA_DIR/history.db; 0 means not at all. "
            "The default of `setpoint up` is 24h.",
        ),
        text("history-max-size", default="512Mi", help="Size of that file above which the oldest are dropped."),
        texts(
            "history-exclude",
            default=("leases.coordination.k8s.io",),
            help="Resources, as RESOURCE or RESOURCE.GROUP, whose changes are not kept there.",
        ),
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
    *about(
        "Traces",
        text("tracing-config-file", help="Which collector gets spans of requests, in a TracingConfiguration."),
    ),
)
"""All flags except --name and --data-dir, whose defaults depend on the command."""


def server_config(flags: Values, data_dir: Path) -> ApiServerConfig:
    """Return the configuration of a server. A data directory that contains a member of etcd continues with it. Raise
    Failed."""
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
    continues, outside = has_member(data_dir), bool(flags.etcd_servers)
    if flags.given("store") and flags.store != "etcd":
        if continues:
            raise Failed(f"{data_dir} contains a member of etcd: --store {flags.store} would start without its data")
    elif outside or flags.etcd or flags.join or continues:
        named["store"] = "etcd"
    elif not flags.given("store"):
        check_not_in_etcd(data_dir, ", or --store sqlite for a cluster with a database in this directory")
    if named["store"] == "etcd" and not outside:
        named["etcd"] = flags.etcd or ("embedded" if flags.join or continues else "")
    if named["etcd"] and not flags.given("bind-address"):
        named["bind_address"] = ""  # depends on the address of the member
    named["compaction_interval"] = named.pop("etcd_compaction_interval")
    return ApiServerConfig(data_dir, **named)
