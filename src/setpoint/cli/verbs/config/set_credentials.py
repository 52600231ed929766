"""`config set-credentials`: set the credentials of a user."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import array, switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.kubeconfig_files import Entry, Files
from setpoint.cli.verbs.config.contexts import arguments
from setpoint.cli.verbs.config.set_cluster import must_exist, put_file
from setpoint.meta.goformat import quote

Obj = dict[str, Any]
_MODES = ("IfAvailable", "Never", "Always")


def run(call: Invocation) -> None:
    flags = call.flags
    (name,) = arguments(call, 1)
    provider, execution = _pairs(flags.auth_provider_arg, "auth-provider-arg"), _pairs(flags.exec_env, "exec-env")
    _check(call, name)
    with Files(call).changing() as settings:
        entry = settings.users.get(name, Entry({}))
        settings.users[name] = entry._replace(body=_changed(call, dict(entry.body), provider, execution))
    call.print(f"User {quote(name)} set.")


def _check(call: Invocation, name: str) -> None:
    flags = call.flags
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
                must_exist(what, path)
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


def _changed(
    call: Invocation,
    body: Obj,
    provider: tuple[dict[str, str], list[str]],
    environment: tuple[dict[str, str], list[str]],
) -> Obj:
    flags = call.flags
    for key, path in (("client-certificate", flags.client_certificate), ("client-key", flags.client_key)):
        if flags.given(key):
            put_file(body, key, path, flags.embed_certs and bool(path))
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
    plugin = _plugin(call, body.get("exec"), environment)
    if plugin is not None:
        body["exec"] = plugin
    return {key: value for key, value in body.items() if value}


def _plugin(call: Invocation, plugin: Obj | None, environment: tuple[dict[str, str], list[str]]) -> Obj | None:
    flags = call.flags
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


COMMAND = Command(
    "Set a user entry in kubeconfig",
    run,
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
        text("exec-api-version", help="The version of what it speaks."),
        texts("exec-arg", help="Arguments of the program, instead of those before."),
        array("exec-env", help="'key=value' environment of the program, 'key-' to remove one."),
        text("exec-interactive-mode", help="Whether it may ask: IfAvailable, Never, Always.", choices=_MODES),
        switch("exec-provide-cluster-info", help="Tell it about the cluster."),
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
