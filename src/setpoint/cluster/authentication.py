"""Authentication of the API server: client certificates, bootstrap tokens, OpenID Connect and token webhooks.

Authenticators are imported only if flags or files configure them.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setpoint.apiserver.authentication.client_certificates import Anchors, CertificateAuthenticator
from setpoint.apiserver.filters.authenticate import RequestAuthenticator
from setpoint.apiserver.remote_servers import RemoteServers
from setpoint.apiserver.tokens import Lookup
from setpoint.cluster.config import ApiServerConfig, ConfigError, open_error
from setpoint.cluster.file_watcher import FileWatcher
from setpoint.cluster.server_parts import PartsBuilder
from setpoint.meta.clock import Clock
from setpoint.meta.field import aggregate_message, forbidden
from setpoint.meta.objects import Obj

if TYPE_CHECKING:
    from setpoint.apiserver.authentication.jwt_tokens import JwtIssuer


log = logging.getLogger("setpoint.cluster")


def wire_authentication(parts: PartsBuilder, config: ApiServerConfig, servers: RemoteServers, lookup: Lookup) -> None:
    """Add authenticators after that of service accounts, whose tokens are verified without a network request. Raises
    ConfigError."""
    access, chain, api = config.access, parts.authenticator, parts.resources
    if config.anonymous_auth is False:
        chain.anonymous_paths = frozenset()
    if access.enable_bootstrap_token_auth:
        from setpoint.apiserver.authentication.bootstrap_tokens import BootstrapTokens

        chain.add(BootstrapTokens(lookup, api.clock))
    if access.authentication_config or access.oidc_issuer_url:
        Issuers(parts, config, servers).wire()
    if access.authentication_token_webhook_config_file:
        from setpoint.apiserver.authentication.webhook_tokens import WebhookTokens
        from setpoint.apiserver.kubeconfig_webhooks import ReviewWebhook
        from setpoint.cluster.webhook_kubeconfig import webhook_endpoint

        flag = "--authentication-token-webhook-config-file"
        endpoint = webhook_endpoint(access.authentication_token_webhook_config_file, flag)
        webhook = ReviewWebhook(servers, endpoint, api.clock, api.ids)
        version, cache_ttl = access.authentication_token_webhook_version, access.authentication_token_webhook_cache_ttl
        chain.add(WebhookTokens(webhook, version, chain.audiences, cache_ttl, api.clock))


class Issuers:
    """Issuers of OpenID Connect tokens, configured by flags or by a file that is reloaded when it changes."""

    def __init__(self, parts: PartsBuilder, config: ApiServerConfig, servers: RemoteServers) -> None:
        from setpoint.apiserver.authentication.jwt_tokens import JwtTokens

        self._parts = parts
        self._clock = parts.resources.clock
        self._config = config
        self._servers = servers
        self.tokens = JwtTokens([], self._clock)
        self._anonymous: object = None
        """The `anonymous` field of the file at the start; it cannot be changed by a reload."""

    def wire(self) -> None:
        """Raises ConfigError."""
        from setpoint.apiserver.authentication.jwt_tokens import JwtTokens

        parts, path = self._parts, self._config.access.authentication_config
        if path:
            data, config = self._read_file(path)
            self._anonymous = config.get("anonymous")
            self._apply_anonymous()
            parts.background.append(FileWatcher(path, data, self.changed, self._clock).run)
        else:
            try:
                authenticator = self._config.access.flag_authenticator()
            except (OSError, ValueError) as error:
                raise ConfigError(f"cannot read --oidc-ca-file: {error}") from None
            config = {"jwt": [authenticator] if authenticator is not None else []}
            self._check(config, "invalid authentication configuration")
        self.tokens = JwtTokens(self._issuers(config), self._clock)
        parts.authenticator.add(self.tokens)
        parts.background.append(self.tokens.run)

    def _read_file(self, path: str) -> tuple[bytes, Obj]:
        from setpoint.apiserver.authentication.configuration import read_authentication
        from setpoint.apiserver.config_files import FileProblem

        try:
            with open(path, "rb") as file:
                data = file.read()
            config = read_authentication(data)
        except OSError as error:
            raise ConfigError(
                f'failed to load authentication configuration from file "{path}": open {path}: '
                f"{(error.strerror or '').lower()}"
            ) from None
        except FileProblem as problem:
            raise ConfigError(f'failed to load authentication configuration from file "{path}": {problem}') from None
        self._check(config, "invalid authentication configuration")
        if config.get("anonymous") is not None and self._config.anonymous_auth is not None:
            text = "--anonymous-auth flag cannot be set when anonymous field is configured in authentication "
            raise ConfigError(forbidden("anonymous", f"{text}configuration file").message())
        return data, config

    def _check(self, config: Obj, about: str) -> None:
        from setpoint.apiserver.authentication.configuration import check_authentication

        errs = check_authentication(config, self._config.service_account_issuer)
        if errs:
            raise ConfigError(f"{about}: {aggregate_message(errs)}")

    def _apply_anonymous(self) -> None:
        anonymous = self._anonymous
        if not isinstance(anonymous, dict):
            return
        paths = frozenset(condition.get("path", "") for condition in anonymous.get("conditions") or ())
        if anonymous.get("enabled"):
            self._parts.authenticator.anonymous_paths = paths or None
        else:
            self._parts.authenticator.anonymous_paths = frozenset()

    def _issuers(self, config: Obj) -> list[JwtIssuer]:
        from setpoint.apiserver.authentication.issuer_keys import Fetcher
        from setpoint.apiserver.authentication.jwt_tokens import ALGORITHMS, JwtIssuer

        access = self._config.access
        algorithms = ALGORITHMS if access.authentication_config else access.oidc_signing_algs
        return [
            JwtIssuer(
                authenticator,
                Fetcher(self._servers, authenticator["issuer"].get("certificateAuthority", "").encode()),
                self._clock,
                algorithms,
            )
            for authenticator in config.get("jwt") or ()
        ]

    async def changed(self, content: bytes) -> bool:
        """Apply new content of the file; an invalid file changes nothing. Return False if an issuer does not answer, so
        that the content is applied again later."""
        from setpoint.apiserver.authentication.configuration import check_authentication, read_authentication
        from setpoint.apiserver.config_files import FileProblem

        try:
            config = read_authentication(content)
        except FileProblem as problem:
            log.error("failed to load authentication config: %s", problem)
            return True
        errs = check_authentication(config, self._config.service_account_issuer)
        if config.get("anonymous") != self._anonymous:
            errs.append(forbidden("anonymous", "changed from initial configuration file"))
        if errs:
            log.error("failed to validate authentication config: %s", aggregate_message(errs))
            return True
        failure = await self.tokens.replace(self._issuers(config))
        if failure:
            log.error("failed to update authentication config: %s", failure)
            return False
        log.info("reloaded authentication config")
        return True


class ClientTrust:
    """The authorities of client certificates: the cluster's own, those of --client-ca-file, and for proxies those of
    --requestheader-client-ca-file. The files are reloaded when they change."""

    def __init__(self, config: ApiServerConfig, own: Path, context: ssl.SSLContext, clock: Clock) -> None:
        """`own` is the file of the cluster's authority, which `context` trusts already. Raises ConfigError."""
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
        fixed = own.read_bytes()
        anchors = Anchors([fixed, clients], clock)
        self.authenticators.append(CertificateAuthenticator(clock, anchors))
        if clients:
            self._watch(config.client_ca_file, clients, anchors, [fixed])

    def _load(self, path: str, flag: str) -> bytes:
        if not path:
            return b""
        try:
            content = Path(path).read_bytes()
            self._context.load_verify_locations(cadata=content.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise ConfigError(f"cannot use {flag} {path}: it must contain PEM certificates and nothing else") from None
        except OSError as error:
            raise ConfigError(f"cannot use {flag}: {open_error(error)}") from None
        return content

    def _add_proxies(self, config: ApiServerConfig, clients: bytes, proxies: bytes) -> None:
        from setpoint.apiserver.authentication.request_header import HeaderNames, RequestHeaderAuthenticator

        access = config.access
        if clients and not access.requestheader_allowed_names and _overlap(clients, proxies):
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
                    access.requestheader_username_headers,
                    access.requestheader_uid_headers,
                    access.requestheader_group_headers,
                    access.requestheader_extra_headers_prefix,
                )
            )
        )
        self.authenticators.append(
            RequestHeaderAuthenticator(anchors, access.requestheader_allowed_names, names, self._clock)
        )
        self._watch(access.requestheader_client_ca_file, proxies, anchors, [])

    def _watch(self, path: str, content: bytes, anchors: Anchors, fixed: list[bytes]) -> None:
        changed = partial(self._changed, path, anchors, fixed)
        self.background.append(FileWatcher(path, content, changed, self._clock).run)

    async def _changed(self, path: str, anchors: Anchors, fixed: list[bytes], content: bytes) -> bool:
        """Replace the certificate authorities. The TLS context can only add authorities, so the authenticator rejects
        certificates of removed ones."""
        try:
            self._context.load_verify_locations(cadata=content.decode("ascii"))
            anchors.replace([*fixed, content])
        except (ssl.SSLError, ValueError) as error:
            log.error("cannot reload %s, the previous content stays in effect: %s", path, error)
            return True
        log.info("reloaded %s", path)
        return True


def _overlap(one: bytes, other: bytes) -> bool:
    from cryptography import x509

    return bool(set(x509.load_pem_x509_certificates(one)) & set(x509.load_pem_x509_certificates(other)))
