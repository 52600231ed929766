"""Client certificates that the API server presents: as front proxy to aggregated API servers, and to kubelets.

A holder of a certificate of the front proxy's authority may name any user in a header, so it is a separate authority
that signs nothing else.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from pathlib import Path

import orjson

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.internal_writes import ensure
from setpoint.cluster.certificates import (
    CertificateFiles,
    ensure_certificates,
    issue_client_certificate,
)
from setpoint.cluster.config import AccessConfig, ApiServerConfig, ConfigError
from setpoint.cluster.private_files import FRONT_PROXY, write_private
from setpoint.kinds.bootstrap.cluster_roles import KUBELET_CLIENT
from setpoint.meta.clock import Clock
from setpoint.wire.tls import TlsClient, Trust

_FRONT_PROXY_CLIENT = "front-proxy-client"
_CERTIFICATE_LIFETIME = timedelta(days=30)


class FrontProxy:
    """The identity of this server towards aggregated API servers."""

    def __init__(self, files: CertificateFiles, clock: Clock, config: ApiServerConfig | None = None) -> None:
        """`config` names further authorities of clients and proxies, which are published too."""
        self._files = files
        self._clock = clock
        self._config = config

    @cached_property
    def _authority(self) -> CertificateFiles:
        return ensure_certificates(self._files.ca.with_name(FRONT_PROXY), self._clock.now())

    @cached_property
    def certificate(self) -> Path:
        """Return a file with certificate and key, which is created on first use after every start."""
        certificate, key = issue_client_certificate(
            self._authority, _FRONT_PROXY_CLIENT, [], self._clock.now(), _CERTIFICATE_LIFETIME
        )
        path = self._authority.ca.with_name(f"{_FRONT_PROXY_CLIENT}.pem")
        write_private(path, certificate + key)
        return path

    async def publish(self, api: ApiResources) -> None:
        """Write the ConfigMap from which aggregated API servers learn which proxies to trust."""
        clients, access = self._config.client_ca_file if self._config else "", AccessConfig()
        if self._config is not None:
            access = self._config.access
        others = access.requestheader_client_ca_file
        # Without names, every holder of a certificate of that authority is a proxy.
        names = (
            []
            if others and not access.requestheader_allowed_names
            else [_FRONT_PROXY_CLIENT, *access.requestheader_allowed_names]
        )
        data = {
            "client-ca-file": _concatenated(self._files.ca, clients),
            "requestheader-allowed-names": _json_list(names),
            "requestheader-client-ca-file": _concatenated(self._authority.ca, others),
            "requestheader-extra-headers-prefix": _json_list(
                ["X-Remote-Extra-", *access.requestheader_extra_headers_prefix]
            ),
            "requestheader-group-headers": _json_list(["X-Remote-Group", *access.requestheader_group_headers]),
            "requestheader-uid-headers": _json_list(["X-Remote-Uid", *access.requestheader_uid_headers]),
            "requestheader-username-headers": _json_list(["X-Remote-User", *access.requestheader_username_headers]),
        }
        meta = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
        await ensure(api, "", "configmaps", {"metadata": meta, "data": data})


def _concatenated(own: Path, other: str) -> str:
    return own.read_text() + (Path(other).read_text() if other else "")


def _json_list(texts: list[str]) -> str:
    return orjson.dumps(list(dict.fromkeys(texts))).decode()


def kubelet_tls(config: ApiServerConfig, files: CertificateFiles | None, clock: Clock) -> Callable[[], TlsClient]:
    """Return a function that creates the TLS client when the first node is dialled; files that flags name are checked
    now. Without `--kubelet-certificate-authority` the certificates of nodes are not verified, as upstream does: nodes
    sign them themselves. Raises ConfigError."""
    authority, named = config.kubelet_certificate_authority, config.kubelet_client_certificate
    trust, own = None, None
    try:
        if authority:
            trust = Trust(clock, _read(authority, "--kubelet-certificate-authority"))
    except ValueError:
        text = "it must contain PEM certificates and nothing else"
        raise ConfigError(f"cannot use --kubelet-certificate-authority {authority}: {text}") from None
    if named:
        flag = "--kubelet-client-certificate"
        own = (_read(named, flag), _read(config.kubelet_client_key or named, flag))
        try:
            TlsClient(trust, own)
        except ssl.SSLError:
            text = "it contains no certificate, or the key does not match"
            raise ConfigError(f"cannot use --kubelet-client-certificate {named}: {text}") from None

    def make() -> TlsClient:
        return TlsClient(trust, own or (_kubelet_client_certificate(files, clock) if files is not None else None))

    return make


def _read(path: str, flag: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot use {flag} {path}: {error.strerror}") from None


def _kubelet_client_certificate(files: CertificateFiles, clock: Clock) -> Path:
    """Return a file with certificate and key, which is new with every start."""
    certificate, key = issue_client_certificate(files, KUBELET_CLIENT, [], clock.now(), _CERTIFICATE_LIFETIME)
    path = files.ca.with_name("apiserver-kubelet-client.pem")
    write_private(path, certificate + key)
    return path
