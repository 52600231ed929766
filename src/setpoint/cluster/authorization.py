"""Which authorizers there are, and in which order: as the flags say, or as a file says, which may change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from setpoint.apiserver.far_server import FarServers
from setpoint.apiserver.filters.authorize import Authorizer
from setpoint.apiserver.server import ApiServer
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.followed_file import FollowedFile

if TYPE_CHECKING:
    from setpoint.apiserver.authorization.configuration import Obj
    from setpoint.apiserver.authorization.webhook_authorizer import WebhookAuthorizer, WebhookOptions
    from setpoint.apiserver.webhook_endpoint import Endpoint

log = logging.getLogger("setpoint.cluster")

_TIMEOUT = 30.0


class Authorizers:
    """`build` makes the one of a type that needs nobody else; it is made once, and stays over changes of the file.
    `always`: asked after all others, whatever is configured."""

    def __init__(
        self,
        api: ApiServer,
        config: ApiServerConfig,
        servers: FarServers,
        build: Callable[[str], Authorizer],
        always: Sequence[Authorizer] = (),
    ) -> None:
        self._always = tuple(always)
        self._api = api
        self._config = config
        self._servers = servers
        self._build = build
        self._kept: dict[str, Authorizer] = {}
        self._entries: list[Obj] = []

    def initial(self) -> list[Authorizer]:
        """Raises ConfigError."""
        path = self._config.access.authorization_config
        if not path:
            modes = self._config.authorization_mode
            return [*(self._flag_webhook() if m == "Webhook" else self._near(m) for m in modes), *self._always]
        from setpoint.apiserver.authorization.configuration import read_authorization
        from setpoint.apiserver.config_files import FileProblem

        try:
            with open(path, "rb") as file:
                data = file.read()
            self._entries = read_authorization(data)
        except OSError as error:
            raise ConfigError(f"--authorization-config: open {path}: {(error.strerror or '').lower()}") from None
        except FileProblem as problem:
            raise ConfigError(f"--authorization-config: {problem}") from None
        self._api.background.append(FollowedFile(path, data, self.changed, self._api.clock).run)
        return self._of(self._entries)

    @property
    def types(self) -> frozenset[str]:
        """That are in force from the start, webhooks aside."""
        return frozenset(self._kept)

    def _near(self, type_: str) -> Authorizer:
        if type_ == "ABAC":
            raise ConfigError("authorization mode ABAC is not available")
        if type_ not in self._kept:
            self._kept[type_] = self._build(type_)
        return self._kept[type_]

    def _of(self, entries: Sequence[Obj]) -> list[Authorizer]:
        found = [self._webhook(one) if one["type"] == "Webhook" else self._near(one["type"]) for one in entries]
        return [*found, *self._always]

    def _flag_webhook(self) -> WebhookAuthorizer:
        from setpoint.apiserver.authorization.webhook_authorizer import WebhookOptions
        from setpoint.cluster.webhook_kubeconfig import webhook_endpoint

        told = self._config.access
        endpoint = webhook_endpoint(told.authorization_webhook_config_file, "--authorization-webhook-config-file")
        options = WebhookOptions(
            "default",
            told.authorization_webhook_version,
            told.authorization_webhook_cache_authorized_ttl,
            told.authorization_webhook_cache_unauthorized_ttl,
        )
        return self._asking(endpoint, options, _TIMEOUT, [])

    def _webhook(self, entry: Obj) -> WebhookAuthorizer:
        from setpoint.apiserver.authorization.configuration import nanoseconds
        from setpoint.apiserver.authorization.webhook_authorizer import WebhookOptions
        from setpoint.cluster.webhook_kubeconfig import webhook_endpoint

        hook = entry["webhook"]
        options = WebhookOptions(
            entry["name"],
            hook["subjectAccessReviewVersion"],
            nanoseconds(hook["authorizedTTL"]) / 1e9 if hook["cacheAuthorizedRequests"] else 0.0,
            nanoseconds(hook["unauthorizedTTL"]) / 1e9 if hook["cacheUnauthorizedRequests"] else 0.0,
            hook["failurePolicy"] == "Deny",
        )
        endpoint = webhook_endpoint(hook["connectionInfo"]["kubeConfigFile"], "--authorization-config")
        conditions = [condition["expression"] for condition in hook.get("matchConditions") or ()]
        return self._asking(endpoint, options, nanoseconds(hook["timeout"]) / 1e9, conditions)

    def _asking(
        self, endpoint: Endpoint, options: WebhookOptions, timeout: float, conditions: list[str]
    ) -> WebhookAuthorizer:
        from setpoint.apiserver.authorization.webhook_authorizer import WebhookAuthorizer
        from setpoint.apiserver.review_webhook import ReviewWebhook

        clock, matching = self._api.clock, None
        if conditions:
            from setpoint.apiserver.authorization.match_conditions import MatchConditions

            matching = MatchConditions(conditions)
        webhook = ReviewWebhook(self._servers, endpoint, clock, self._api.ids, timeout)
        return WebhookAuthorizer(webhook, clock, options, matching)

    async def changed(self, content: bytes) -> bool:
        """What is wrong stays without effect."""
        from setpoint.apiserver.authorization.configuration import read_authorization
        from setpoint.apiserver.config_files import FileProblem

        try:
            entries = read_authorization(content, sorted(self.types))
            added = sorted({entry["type"] for entry in entries} - self.types - {"Webhook", "AlwaysAllow", "AlwaysDeny"})
            if added:
                raise FileProblem(
                    f"authorizer type {added[0]} is not allowed if it was not enabled at initial server startup"
                )
            if entries == self._entries:
                return True
            authorizers = self._of(entries)
        except (FileProblem, ConfigError) as problem:
            log.error("reloading authorization config: %s", problem)
            return True
        self._entries = entries
        self._api.authorizer.replace(authorizers)
        log.info("reloaded authz config")
        return True
