"""The connection flags of kubectl (server, user and namespace), and the line that shows which cluster is used."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from setpoint.cli.flags import Flag, Values, array, switch, text, texts
from setpoint.client.cluster_choice import Choice, ClusterFlags, display_path
from setpoint.client.cluster_choice import access as chosen_access
from setpoint.client.kubeconfig import Access, KubeconfigError

_CURRENT = re.compile(rb"""(?:^|[{,])\s*"?current-context"?[ \t]*:[ \t]*["']?([^"'\s,}]+)""", re.MULTILINE)
_MAX = 1 << 20


def which_cluster(choice: Choice, home: Path) -> str:
    """Return the line if there is a cluster of this directory and another possible one; otherwise an empty string."""
    if choice.how == "--data-dir":
        return ""
    if choice.directory is not None:
        other = home / ".kube" / "config"
        name = _current_context(other)
        where = f"setpoint: using the cluster of this directory ({display_path(choice.directory)})"
        return f"{where}, not context {name} of {_homely(other, home)}" if name else ""
    if choice.skipped is not None:
        used = {"KUBECONFIG": "the cluster of $KUBECONFIG"}.get(choice.how, f"the cluster that {choice.how} names")
        return f"setpoint: using {used}, not the cluster of this directory ({display_path(choice.skipped)})"
    return ""


def _current_context(path: Path) -> str:
    """Return the name without parsing the file, which may be large or invalid: this must neither wait nor fail."""
    try:
        with open(path, "rb") as file:
            found = _CURRENT.search(file.read(_MAX))
    except OSError:
        return ""
    name = found[1].decode("utf-8", "replace") if found else ""
    return "".join(char if char.isprintable() else "\ufffd" for char in name)


def _homely(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}"


FLAGS: tuple[Flag, ...] = (
    text("kubeconfig", help="Path to the kubeconfig file to use for CLI requests."),
    text("context", help="The name of the kubeconfig context to use"),
    text("cluster", help="The name of the kubeconfig cluster to use"),
    text("user", help="The name of the kubeconfig user to use"),
    text("namespace", "n", help="If present, the namespace scope for this CLI request"),
    text("server", "s", help="The address and port of the Kubernetes API server"),
    text("tls-server-name", help="Server name to use for server certificate validation."),
    switch("insecure-skip-tls-verify", help="If true, the server's certificate will not be checked for validity."),
    text("certificate-authority", help="Path to a cert file for the certificate authority"),
    text("client-certificate", help="Path to a client certificate file for TLS"),
    text("client-key", help="Path to a client key file for TLS"),
    text("token", help="Bearer token for authentication to the API server"),
    text("username", help="Username for basic authentication to the API server", hidden=True),
    text("password", help="Password for basic authentication to the API server", hidden=True),
    text("as", help="Username to impersonate for the operation."),
    array("as-group", help="Group to impersonate for the operation; repeat for several."),
    text("as-uid", help="UID to impersonate for the operation."),
    array("as-user-extra", help="Extra values of the impersonated user, key=value; repeat for several."),
    text("request-timeout", default="0", help="How long to wait for one answer (1s, 2m, 3h); 0 means: do not give up."),
    text("cache-dir", default="", help="Where what the server offers is remembered.  [default: ~/.kube/cache]"),
    switch("warnings-as-errors", help="Treat warnings received from the server as errors: the exit code is not 0"),
    switch("match-server-version", help="Require server version to match client version"),
    switch("disable-compression", help="Do not ask the server for compressed answers"),
    Flag("v", "v", 0, "Number for the log level verbosity", int, "Level", "0"),
    text("vmodule", hidden=True),
    text("log-flush-frequency", hidden=True, default="5s"),
    text("profile", hidden=True, default="none"),
    text("profile-output", hidden=True, default="profile.pprof"),
    text("kuberc", hidden=True),
    texts("feature-gates", hidden=True),
)


_SERVER_FLAGS = (
    "kubeconfig",
    "context",
    "cluster",
    "user",
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority",
    "client-certificate",
    "client-key",
    "token",
    "username",
    "password",
)


def wanted(flags: Values) -> ClusterFlags:
    """Return the cluster that the flags select."""
    # Some commands use one of these names for another flag.
    return ClusterFlags(*(getattr(flags, name, "") for name in ClusterFlags._fields))


def kubeconfig_paths(flags: Values, environment: Mapping[str, str], home: Path) -> list[Path]:
    """Return the files that `config` reads and writes, in order of precedence; never that of this directory."""
    if flags.kubeconfig:
        return [Path(flags.kubeconfig)]
    listed = [Path(path) for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    return listed or [home / ".kube" / "config"]


def access(flags: Values, choice: Choice, environment: Mapping[str, str]) -> Access:
    """Return how to connect to the chosen cluster; flags override its kubeconfig. Raise KubeconfigError."""
    found = chosen_access(choice, wanted(flags), environment)
    _replace_server_and_user(found, flags)
    if flags.namespace:
        found.namespace = flags.namespace
    _impersonate(found, flags)
    return found


def adjusted(given: Access, flags: Values) -> Access:
    """Return how to connect to a server that is fixed: the flags choose the namespace, and a user to impersonate.
    Raise KubeconfigError if they choose another server."""
    for flag, _ in flags.occurrences:
        if flag.name in _SERVER_FLAGS and flag in FLAGS:  # not another flag of the same name
            raise KubeconfigError(f"--{flag.name} cannot be used here: commands use the cluster that is shown")
    from copy import copy  # only the terminal of the page has a fixed server

    found = copy(given)
    found.namespace = flags.namespace or given.namespace
    _impersonate(found, flags)
    return found


def _replace_server_and_user(found: Access, flags: Values) -> None:
    for key in ("tls_server_name", "token", "username", "password"):
        if value := getattr(flags, key):
            setattr(found, key, value)
    if flags.token:
        found.token_file = found.exec = None
        # A server checks certificates before tokens: the certificate of the kubeconfig would override the token's user.
        found.certificate = found.key = None
    if flags.server:
        found.server = flags.server if "://" in flags.server else f"http://{flags.server}"
    if flags.given("insecure-skip-tls-verify"):
        found.insecure = flags.insecure_skip_tls_verify
        if found.insecure:
            found.ca = None
    if flags.certificate_authority:
        found.ca = _content(flags.certificate_authority, "certificate-authority")
    if flags.client_certificate:
        found.certificate = _content(flags.client_certificate, "client-certificate")
    if flags.client_key:
        found.key = _content(flags.client_key, "client-key")


def _content(path: str, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise KubeconfigError(f"unable to read {what} {path}: {error.strerror}") from None


def _impersonate(found: Access, flags: Values) -> None:
    user = getattr(flags, "as")
    if not user:
        if flags.as_group or flags.as_uid or flags.as_user_extra:
            raise KubeconfigError("requesting uid, groups or user-extra without impersonating a user")
        return
    from setpoint.client.kubeconfig import Impersonation

    extra: dict[str, list[str]] = {}
    for entry in flags.as_user_extra:
        key, equals, value = entry.partition("=")
        if not equals:
            raise KubeconfigError(f"--as-user-extra {entry!r} is not key=value")
        extra.setdefault(key, []).append(value)
    found.impersonate = Impersonation(
        user, flags.as_uid, tuple(flags.as_group), {key: tuple(values) for key, values in extra.items()}
    )
