"""How this server shows itself to nodes, and what it wants to see of them."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from setpoint.apiserver.http.certificates import CertificateFiles, issue_client_certificate
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.private_files import write_private
from setpoint.kinds.bootstrap.own_identities import KUBELET_CLIENT
from setpoint.meta.clock import Clock

_LIFETIME = timedelta(days=30)


def kubelet_context(
    config: ApiServerConfig, files: CertificateFiles | None, clock: Clock
) -> Callable[[], ssl.SSLContext]:
    """Made when the first node is dialled; files that somebody names are looked at here. Without
    `--kubelet-certificate-authority` nodes' certificates are not checked, as upstream does it: they are nodes' own, and
    no authority that we know of has signed them. Raises ConfigError."""

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if config.kubelet_certificate_authority:
            context.load_verify_locations(config.kubelet_certificate_authority)
        else:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if config.kubelet_client_certificate:
            context.load_cert_chain(config.kubelet_client_certificate, config.kubelet_client_key)
        elif files is not None:
            context.load_cert_chain(_own_certificate(files, clock))
        return context

    _check(config)
    return make


def _check(config: ApiServerConfig) -> None:
    for flag, path in (
        ("--kubelet-certificate-authority", config.kubelet_certificate_authority),
        ("--kubelet-client-certificate", config.kubelet_client_certificate),
    ):
        if not path:
            continue
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if path == config.kubelet_client_certificate:
                context.load_cert_chain(path, config.kubelet_client_key)
            else:
                context.load_verify_locations(path)
        except ssl.SSLError:
            raise ConfigError(f"cannot use {flag} {path}: it holds no certificate, or its key is another one") from None
        except OSError as error:
            raise ConfigError(f"cannot use {flag} {path}: {error.strerror}") from None


def _own_certificate(files: CertificateFiles, clock: Clock) -> Path:
    """Certificate and key in one file, new with every start."""
    certificate, key = issue_client_certificate(files, KUBELET_CLIENT, [], clock.now(), _LIFETIME)
    path = files.ca.with_name("apiserver-kubelet-client.pem")
    write_private(path, certificate + key)
    return path
