"""How this server shows itself to nodes, and what it wants to see of them."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from setpoint.apiserver.http.certificates import CertificateFiles, issue_client_certificate
from setpoint.client.tls import TlsClient, Trust
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.private_files import write_private
from setpoint.kinds.bootstrap.own_identities import KUBELET_CLIENT
from setpoint.meta.clock import Clock

_LIFETIME = timedelta(days=30)


def kubelet_tls(config: ApiServerConfig, files: CertificateFiles | None, clock: Clock) -> Callable[[], TlsClient]:
    """Made when the first node is dialled; files that somebody names are looked at here. Without
    `--kubelet-certificate-authority` nodes' certificates are not checked, as upstream does it: they are nodes' own, and
    no authority that we know of has signed them. Raises ConfigError."""

    authority, named = config.kubelet_certificate_authority, config.kubelet_client_certificate
    trust, own = None, None
    try:
        if authority:
            trust = Trust(clock, _read(authority, "--kubelet-certificate-authority"))
    except ValueError:
        raise ConfigError(f"cannot use --kubelet-certificate-authority {authority}: it holds no certificate") from None
    if named:
        flag = "--kubelet-client-certificate"
        own = (_read(named, flag), _read(config.kubelet_client_key or named, flag))
        try:
            TlsClient(trust, own)
        except ssl.SSLError:
            text = "it holds no certificate, or its key is another one"
            raise ConfigError(f"cannot use --kubelet-client-certificate {named}: {text}") from None

    def make() -> TlsClient:
        return TlsClient(trust, own or (_own_certificate(files, clock) if files is not None else None))

    return make


def _read(path: str, flag: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot use {flag} {path}: {error.strerror}") from None


def _own_certificate(files: CertificateFiles, clock: Clock) -> Path:
    """Certificate and key in one file, new with every start."""
    certificate, key = issue_client_certificate(files, KUBELET_CLIENT, [], clock.now(), _LIFETIME)
    path = files.ca.with_name("apiserver-kubelet-client.pem")
    write_private(path, certificate + key)
    return path
