"""`config set-cluster` and `config set-credentials`: the address and CA of a cluster, the credentials of a user."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import array, switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.kubeconfig_files import Entry, Files
from setpoint.cli.verbs.config.contexts import arguments
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

_MODES = ("IfAvailable", "Never", "Always")


def set_cluster(invocation: Invocation) -> None:
    flags = invocation.flags
    (name,) = arguments(invocation, 1)
    if not name:
        raise Failed("you must specify a non-empty cluster name")
    if flags.insecure_skip_tls_verify and flags.certificate_authority:
        raise Failed("you cannot specify a certificate authority and insecure mode at the same time")
    if flags.embed_certs:
        if not flags.certificate_authority:
            raise Failed("you must specify a --certificate-authority to embed")
        _must_exist("certificate-authority", flags.certificate_authority)
    with Files(invocation).changing() as settings:
        entry = settings.clusters.get(name, Entry({"server": ""}))
        settings.clusters[name] = entry._replace(body=_changed_cluster(invocation, dict(entry.body)))
    invocation.print(f"Cluster {quote(name)} set.")


def _changed_cluster(invocation: Invocation, body: Obj) -> Obj:
    flags = invocation.flags
    if flags.given("server"):
        body["server"] = flags.server
        body.pop("tls-server-name", None)  # it belonged to the previous server
    if flags.given("tls-server-name"):
        body["tls-server-name"] = flags.tls_server_name
    if flags.given("insecure-skip-tls-verify"):
        body["insecure-skip-tls-verify"] = flags.insecure_skip_tls_verify
        if flags.insecure_skip_tls_verify:
            body.pop("certificate-authority", None)
            body.pop("certificate-authority-data", None)
    if flags.given("certificate-authority"):
        _put_file(body, "certificate-authority", flags.certificate_authority, flags.embed_certs)
        if flags.certificate_authority:
            body.pop("insecure-skip-tls-verify", None)
    if flags.given("proxy-url"):
        body["proxy-url"] = flags.proxy_url
    return {key: value for key, value in body.items() if value or key == "server"}


def _must_exist(what: str, path: str) -> None:
    if not Path(path).exists():
        raise Failed(f"could not stat {what} file {path}: stat {path}: no such file or directory")


def _put_file(body: Obj, key: str, path: str, embed: bool) -> None:
    """Set the path or the content of a file, and remove the other one."""
    if embed:
        body[f"{key}-data"] = b64encode(Path(path).read_bytes()).decode()
        body.pop(key, None)
    else:
        body[key] = os.path.abspath(path) if path else ""
        if path:
            body.pop(f"{key}-data", None)


SET_CLUSTER = Command(
    "Set a cluster entry in kubeconfig",
    set_cluster,
    (
        text("server", help="Its address, https://host:port."),
        text("tls-server-name", help="The name that its certificate must have, if not that of the address."),
        switch("insecure-skip-tls-verify", help="Do not check its certificate."),
        text("certificate-authority", help="Path to the certificate of who has signed the server's."),
        switch("embed-certs", help="Write the content of that file, not its path."),
        text("proxy-url", help="The proxy on the way to it."),
    ),
    usage="NAME [--server=server] [--certificate-authority=path/to/certificate/authority] "
    "[--insecure-skip-tls-verify=true] [--tls-server-name=example.com]",
    about="Settings that are not given are unchanged.",
    examples="""
    setpoint config set-cluster staging --server=https://10.0.0.1:6443 --certificate-authority=ca.crt --embed-certs
    """,
)


def set_credentials(invocation: Invocation) -> None:
    flags = invocation.flags
    (name,) = arguments(invocation, 1)
    provider, execution = _pairs(flags.auth_provider_arg, "auth-provider-arg"), _pairs(flags.exec_env, "exec-env")
    _check_credentials(invocation, name)
    with Files(invocation).changing() as settings:
        entry = settings.users.get(name, Entry({}))
        settings.users[name] = entry._replace(body=_changed_user(invocation, dict(entry.body), provider, execution))
    invocation.print(f"User {quote(name)} set.")


def _check_credentials(invocation: Invocation, name: str) -> None:
    flags = invocation.flags
    if not name:
        raise Failed("you must specify a non-empty user name")
    if flags.token and (flags.username or flags.password):
        message = "--token, --username/--password"
        raise Failed(f"you cannot specify more than one authentication method at the same time: {message}")
    if flags.embed_certs:
        if not (flags.client_certificate or flags.client_key):
            raise Failed("you must specify a --client-certificate or --client-key to embed")
        for what, path in (("client-certificate", flags.client_certificate), ("client-key", flags.client_key)):
            if path:
                _must_exist(what, path)
    if flags.given("exec-interactive-mode") and flags.exec_interactive_mode not in _MODES:
        raise Failed(f"invalid interactive mode type, can be only {', '.join(_MODES)}")


def _pairs(given: list[str], flag: str) -> tuple[dict[str, str], list[str]]:
    """Return the pairs to set, and the keys to remove (`key-`)."""
    put: dict[str, str] = {}
    removed: list[str] = []
    for word in given:
        key, equals, value = word.partition("=")
        if equals and key:
            put[key] = value
        elif not equals and word.endswith("-") and len(word) > 1:
            removed.append(word[:-1])
        else:
            raise Failed(f"invalid {flag} format: {word}")
    return put, removed


def _changed_user(
    invocation: Invocation,
    body: Obj,
    provider: tuple[dict[str, str], list[str]],
    environment: tuple[dict[str, str], list[str]],
) -> Obj:
    flags = invocation.flags
    for key, path in (("client-certificate", flags.client_certificate), ("client-key", flags.client_key)):
        if flags.given(key):
            _put_file(body, key, path, flags.embed_certs and bool(path))
    for key in ("token", "username", "password"):
        if flags.given(key):
            body[key] = getattr(flags, key)
    if flags.token:
        body = {key: value for key, value in body.items() if key not in ("username", "password")}
    elif flags.username or flags.password:
        body.pop("token", None)
    if flags.given("auth-provider") and (body.get("auth-provider") or {}).get("name") != flags.auth_provider:
        body["auth-provider"] = {"name": flags.auth_provider}
    if body.get("auth-provider"):
        put, removed = provider
        old = {key: value for key, value in (body["auth-provider"].get("config") or {}).items() if key not in removed}
        body["auth-provider"] = {**body["auth-provider"], "config": {**old, **put}}
    plugin = _plugin(invocation, body.get("exec"), environment)
    if plugin is not None:
        body["exec"] = plugin
    return {key: value for key, value in body.items() if value}


def _plugin(invocation: Invocation, plugin: Obj | None, environment: tuple[dict[str, str], list[str]]) -> Obj | None:
    flags = invocation.flags
    if flags.given("exec-command"):
        plugin = {**(plugin or {"env": None, "provideClusterInfo": False}), "command": flags.exec_command, "args": None}
    if plugin is None:
        return None
    plugin = dict(plugin)
    for key, flag in (
        ("apiVersion", "exec-api-version"),
        ("interactiveMode", "exec-interactive-mode"),
        ("provideClusterInfo", "exec-provide-cluster-info"),
    ):
        if flags.given(flag):
            plugin[key] = getattr(flags, flag.replace("-", "_"))
    if flags.exec_arg:
        plugin["args"] = flags.exec_arg
    put, removed = environment
    if put or removed:
        old = {one["name"]: one.get("value", "") for one in plugin.get("env") or () if one["name"] not in removed}
        plugin["env"] = [{"name": name, "value": value} for name, value in {**old, **put}.items()]
    return plugin


SET_CREDENTIALS = Command(
    "Set a user entry in kubeconfig",
    set_credentials,
    (
        text("client-certificate", help="Path to the certificate of the user."),
        text("client-key", help="Path to its key."),
        switch("embed-certs", help="Write the contents of these files, not their paths."),
        text("token", help="A bearer token."),
        text("username", help="A name for basic authentication."),
        text("password", help="A password for basic authentication."),
        text("auth-provider", help="An auth provider; no client supports them any more."),
        texts("auth-provider-arg", help="'key=value' arguments for the auth provider, 'key-' to remove one."),
        text("exec-command", help="A program that gives out credentials."),
        text("exec-api-version", help="The API version of its output."),
        texts("exec-arg", help="Arguments of the program, instead of those before."),
        array("exec-env", help="'key=value' environment of the program, 'key-' to remove one."),
        text("exec-interactive-mode", help="Whether it may ask: IfAvailable, Never, Always.", choices=_MODES),
        switch("exec-provide-cluster-info", help="Pass it the address and CA of the cluster."),
    ),
    usage="NAME [--client-certificate=path/to/certfile] [--client-key=path/to/keyfile] [--token=bearer_token] "
    "[--username=basic_user] [--password=basic_password] [--exec-command=exec_command] ...",
    about="Settings that are not given are unchanged. A token replaces name and password, and vice versa.",
    examples="""
    setpoint config set-credentials me --client-certificate=me.crt --client-key=me.key --embed-certs

    setpoint config set-credentials me --exec-command=my-login --exec-api-version=client.authentication.k8s.io/v1 \\
      --exec-interactive-mode=Never
    """,
)
