"""`config set-cluster`: set the address and CA of a cluster."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.kubeconfig_files import Entry, Files
from setpoint.cli.verbs.config.contexts import arguments
from setpoint.meta.goformat import quote

Obj = dict[str, Any]


def run(call: Invocation) -> None:
    flags = call.flags
    (name,) = arguments(call, 1)
    if not name:
        raise Failed("you must specify a non-empty cluster name")
    if flags.insecure_skip_tls_verify and flags.certificate_authority:
        raise Failed("you cannot specify a certificate authority and insecure mode at the same time")
    if flags.embed_certs:
        if not flags.certificate_authority:
            raise Failed("you must specify a --certificate-authority to embed")
        must_exist("certificate-authority", flags.certificate_authority)
    with Files(call).changing() as settings:
        entry = settings.clusters.get(name, Entry({"server": ""}))
        settings.clusters[name] = entry._replace(body=_changed(call, dict(entry.body)))
    call.print(f"Cluster {quote(name)} set.")


def _changed(call: Invocation, body: Obj) -> Obj:
    flags = call.flags
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
        put_file(body, "certificate-authority", flags.certificate_authority, flags.embed_certs)
        if flags.certificate_authority:
            body.pop("insecure-skip-tls-verify", None)
    if flags.given("proxy-url"):
        body["proxy-url"] = flags.proxy_url
    return {key: value for key, value in body.items() if value or key == "server"}


def must_exist(what: str, path: str) -> None:
    if not Path(path).exists():
        raise Failed(f"could not stat {what} file {path}: stat {path}: no such file or directory")


def put_file(body: Obj, key: str, path: str, embed: bool) -> None:
    """Set the path or the content of a file, and remove the other one."""
    if embed:
        body[f"{key}-data"] = b64encode(Path(path).read_bytes()).decode()
        body.pop(key, None)
    else:
        body[key] = os.path.abspath(path) if path else ""
        if path:
            body.pop(f"{key}-data", None)


COMMAND = Command(
    "Set a cluster entry in kubeconfig",
    run,
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
