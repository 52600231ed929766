"""Whose certificates say who somebody is: the cluster's own authority, those of --client-ca-file, and for proxies those
of --requestheader-client-ca-file. The files may change while the server runs."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from setpoint.apiserver.authentication.client_certificates import Anchors, CertificateAuthenticator
from setpoint.apiserver.filters.authenticate import RequestAuthenticator
from setpoint.cluster.config import ApiServerConfig, ConfigError, unopened
from setpoint.cluster.followed_file import FollowedFile
from setpoint.meta.clock import Clock

log = logging.getLogger("setpoint.cluster")


class ClientTrust:
    def __init__(self, config: ApiServerConfig, own: Path, context: ssl.SSLContext, clock: Clock) -> None:
        """`own`: the file of the cluster's authority, which `context` trusts already. Raises ConfigError."""
        self._context = context
        self._clock = clock
        self.authenticators: list[RequestAuthenticator] = []
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        clients = self._load(config.client_ca_file, "--client-ca-file")
        proxies = self._load(config.access.requestheader_client_ca_file, "--requestheader-client-ca-file")
        if proxies:
            self._add_proxies(config, clients, proxies)
        if not clients and not proxies:
            self.authenticators.append(CertificateAuthenticator(clock))
            return
        always = own.read_bytes()
        anchors = Anchors([always, clients], clock)
        self.authenticators.append(CertificateAuthenticator(clock, anchors))
        if clients:
            self._follow(config.client_ca_file, clients, anchors, [always])

    def _load(self, path: str, flag: str) -> bytes:
        if not path:
            return b""
        try:
            content = Path(path).read_bytes()
            self._context.load_verify_locations(cadata=content.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise ConfigError(f"cannot use {flag} {path}: it holds no certificate, or something else besides") from None
        except OSError as error:
            raise ConfigError(f"cannot use {flag}: {unopened(error)}") from None
        return content

    def _add_proxies(self, config: ApiServerConfig, clients: bytes, proxies: bytes) -> None:
        from setpoint.apiserver.authentication.request_header import HeaderNames, RequestHeaderAuthenticator

        told = config.access
        if clients and not told.requestheader_allowed_names and _overlap(clients, proxies):
            raise ConfigError(
                "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; "
                "--requestheader-allowed-names must be specified to ensure regular client certificates cannot set "
                "authenticating proxy headers for arbitrary users"
            )
        anchors = Anchors([proxies], self._clock)
        names = HeaderNames(
            *(
                tuple(header.strip().lower() for header in headers)
                for headers in (
                    told.requestheader_username_headers,
                    told.requestheader_uid_headers,
                    told.requestheader_group_headers,
                    told.requestheader_extra_headers_prefix,
                )
            )
        )
        self.authenticators.append(
            RequestHeaderAuthenticator(anchors, told.requestheader_allowed_names, names, self._clock)
        )
        self._follow(told.requestheader_client_ca_file, proxies, anchors, [])

    def _follow(self, path: str, content: bytes, anchors: Anchors, always: list[bytes]) -> None:
        changed = partial(self._changed, path, anchors, always)
        self.background.append(FollowedFile(path, content, changed, self._clock).run)

    async def _changed(self, path: str, anchors: Anchors, always: list[bytes], content: bytes) -> bool:
        """The TLS layer only ever trusts more; who is not trusted any more is turned away by its certificate."""
        try:
            self._context.load_verify_locations(cadata=content.decode("ascii"))
            anchors.replace([*always, content])
        except (ssl.SSLError, ValueError) as error:
            log.error("%s cannot be used, what it said before holds: %s", path, error)
            return True
        log.info("%s has changed", path)
        return True


def _overlap(one: bytes, other: bytes) -> bool:
    from cryptography import x509

    return bool(set(x509.load_pem_x509_certificates(one)) & set(x509.load_pem_x509_certificates(other)))
