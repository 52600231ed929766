"""Which tokens say who somebody is, besides those of service accounts: what the flags and files ask for, in upstream's
order. Nothing of it is loaded where nothing is asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from setpoint.apiserver.far_server import FarServers
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.tokens import Lookup
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.followed_file import FollowedFile
from setpoint.meta.field import aggregate_message, forbidden

if TYPE_CHECKING:
    from setpoint.apiserver.authentication.configuration import Obj
    from setpoint.apiserver.authentication.jwt_tokens import JwtIssuer

log = logging.getLogger("setpoint.cluster")


def wire_authentication(api: ApiServer, config: ApiServerConfig, servers: FarServers, lookup: Lookup) -> None:
    """After service accounts: their tokens need nobody to be asked. Raises ConfigError."""
    told, chain = config.access, api.authenticator
    if config.anonymous_auth is False:
        chain.anonymous_paths = frozenset()
    if told.enable_bootstrap_token_auth:
        from setpoint.apiserver.authentication.bootstrap_tokens import BootstrapTokens

        chain.add(BootstrapTokens(lookup, api.clock))
    if told.authentication_config or told.oidc_issuer_url:
        Issuers(api, config, servers).wire()
    if told.authentication_token_webhook_config_file:
        from setpoint.apiserver.authentication.webhook_tokens import WebhookTokens
        from setpoint.apiserver.review_webhook import ReviewWebhook
        from setpoint.cluster.webhook_kubeconfig import webhook_endpoint

        flag = "--authentication-token-webhook-config-file"
        endpoint = webhook_endpoint(told.authentication_token_webhook_config_file, flag)
        webhook = ReviewWebhook(servers, endpoint, api.clock, api.ids)
        version, kept = told.authentication_token_webhook_version, told.authentication_token_webhook_cache_ttl
        chain.add(WebhookTokens(webhook, version, chain.audiences, kept, api.clock))


class Issuers:
    """Issuers of OpenID Connect tokens, of the flags or of a file, which may change."""

    def __init__(self, api: ApiServer, config: ApiServerConfig, servers: FarServers) -> None:
        from setpoint.apiserver.authentication.jwt_tokens import JwtTokens

        self._api = api
        self._config = config
        self._servers = servers
        self.tokens = JwtTokens([], api.clock)
        self._anonymous: object = None
        """As the file had it at the start: it must stay so."""

    def wire(self) -> None:
        """Raises ConfigError."""
        from setpoint.apiserver.authentication.jwt_tokens import JwtTokens

        api, path = self._api, self._config.access.authentication_config
        if path:
            data, config = self._read_file(path)
            self._anonymous = config.get("anonymous")
            self._apply_anonymous()
            api.background.append(FollowedFile(path, data, self.changed, api.clock).run)
        else:
            try:
                authenticator = self._config.access.flag_authenticator()
            except (OSError, ValueError) as error:
                raise ConfigError(f"cannot read --oidc-ca-file: {error}") from None
            config = {"jwt": [authenticator] if authenticator is not None else []}
            self._check(config, "invalid authentication configuration")
        self.tokens = JwtTokens(self._issuers(config), api.clock)
        api.authenticator.add(self.tokens)
        api.background.append(self.tokens.run)

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
        told = self._anonymous
        if not isinstance(told, dict):
            return
        paths = frozenset(condition.get("path", "") for condition in told.get("conditions") or ())
        if told.get("enabled"):
            self._api.authenticator.anonymous_paths = paths or None
        else:
            self._api.authenticator.anonymous_paths = frozenset()

    def _issuers(self, config: Obj) -> list[JwtIssuer]:
        from setpoint.apiserver.authentication.fetching import Fetcher
        from setpoint.apiserver.authentication.jwt_tokens import JwtIssuer
        from setpoint.apiserver.authentication.token_verifier import ALGORITHMS

        told = self._config.access
        algorithms = ALGORITHMS if told.authentication_config else told.oidc_signing_algs
        return [
            JwtIssuer(
                authenticator,
                Fetcher(self._servers, authenticator["issuer"].get("certificateAuthority", "").encode()),
                self._api.clock,
                algorithms,
            )
            for authenticator in config.get("jwt") or ()
        ]

    async def changed(self, content: bytes) -> bool:
        """What is wrong stays without effect. Whether it is settled: issuers that do not answer yet may later."""
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
        problem_ = await self.tokens.replace(self._issuers(config))
        if problem_:
            log.error("failed to update authentication config: %s", problem_)
            return False
        log.info("reloaded authentication config")
        return True
