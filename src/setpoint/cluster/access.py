"""Access to the API server: authorizers, service account tokens, access reviews, and guards against privilege
escalation.

Webhook authorizers and the reader of their configuration are imported only if they are configured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.apiserver.admission.plugin import Chain
from setpoint.apiserver.api_resources import ApiResources, CacheReader
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.filters.authorize import AlwaysAllow, AlwaysDeny, Authorizer, AuthorizerChain
from setpoint.apiserver.filters.node_authorizer import NodeAuthorizer, NodeRelations
from setpoint.apiserver.filters.rbac import GROUP, Policy, RbacAuthorizer
from setpoint.apiserver.filters.write_guards import (
    AdminAccessGuard,
    BindingGuard,
    ClaimGuard,
    PolicyBindingGuard,
    PolicyGuard,
    RoleGuard,
)
from setpoint.apiserver.handlers.reviews import AccessReviews, IdentityReviews
from setpoint.apiserver.handlers.service_account_tokens import CONFIGURATION, KEYS, IssuerDocuments, TokenRequests
from setpoint.apiserver.remote_servers import RemoteServers
from setpoint.apiserver.tokens import Lookup, ServiceAccountTokens, SigningKey, TokenKeys
from setpoint.apiserver.upkeep.loop import KeyedLoop
from setpoint.cluster.authentication import wire_authentication
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig, ConfigError, open_error
from setpoint.cluster.file_watcher import FileWatcher
from setpoint.cluster.server_parts import PartsBuilder
from setpoint.meta.jose import VerifyingKey, verifying_keys
from setpoint.meta.objects import Obj

if TYPE_CHECKING:
    from setpoint.apiserver.authorization import WebhookAuthorizer, WebhookOptions
    from setpoint.apiserver.kubeconfig_webhooks import Endpoint


log = logging.getLogger("setpoint.cluster")

_WEBHOOK_TIMEOUT = 30.0


class Authorizers:
    """The authorizers in the order of the flags, or of a configuration file that is reloaded when it changes."""

    def __init__(
        self,
        parts: PartsBuilder,
        config: ApiServerConfig,
        servers: RemoteServers,
        build: Callable[[str], Authorizer],
        always: Sequence[Authorizer] = (),
    ) -> None:
        """`build` creates the authorizer of a type other than Webhook; it is created once and survives reloads.
        `always` are consulted after all others, whatever is configured."""
        self._always = tuple(always)
        self._parts = parts
        self._clock = parts.resources.clock
        self._ids = parts.resources.ids
        self.chain = AuthorizerChain(())
        self._config = config
        self._servers = servers
        self._build = build
        self._by_type: dict[str, Authorizer] = {}
        self._entries: list[Obj] = []

    def load(self) -> AuthorizerChain:
        """Return the chain of the configured authorizers. Raises ConfigError."""
        self.chain.replace(self._initial())
        return self.chain

    def _initial(self) -> list[Authorizer]:
        path = self._config.access.authorization_config
        if not path:
            modes = self._config.authorization_mode
            return [*(self._flag_webhook() if m == "Webhook" else self._builtin(m) for m in modes), *self._always]
        from setpoint.apiserver.authorization import read_authorization
        from setpoint.apiserver.config_files import FileProblem

        try:
            with open(path, "rb") as file:
                data = file.read()
            self._entries = read_authorization(data)
        except OSError as error:
            raise ConfigError(f"--authorization-config: open {path}: {(error.strerror or '').lower()}") from None
        except FileProblem as problem:
            raise ConfigError(f"--authorization-config: {problem}") from None
        self._parts.background.append(FileWatcher(path, data, self.changed, self._clock).run)
        return self._authorizers(self._entries)

    @property
    def types(self) -> frozenset[str]:
        """Return the types that are enabled at the start, except Webhook."""
        return frozenset(self._by_type)

    def _builtin(self, type_: str) -> Authorizer:
        if type_ == "ABAC":
            raise ConfigError("authorization mode ABAC is not available")
        if type_ not in self._by_type:
            self._by_type[type_] = self._build(type_)
        return self._by_type[type_]

    def _authorizers(self, entries: Sequence[Obj]) -> list[Authorizer]:
        found = [self._webhook(one) if one["type"] == "Webhook" else self._builtin(one["type"]) for one in entries]
        return [*found, *self._always]

    def _flag_webhook(self) -> WebhookAuthorizer:
        from setpoint.apiserver.authorization import WebhookOptions
        from setpoint.cluster.webhook_kubeconfig import webhook_endpoint

        access = self._config.access
        endpoint = webhook_endpoint(access.authorization_webhook_config_file, "--authorization-webhook-config-file")
        options = WebhookOptions(
            "default",
            access.authorization_webhook_version,
            access.authorization_webhook_cache_authorized_ttl,
            access.authorization_webhook_cache_unauthorized_ttl,
        )
        return self._webhook_authorizer(endpoint, options, _WEBHOOK_TIMEOUT, [])

    def _webhook(self, entry: Obj) -> WebhookAuthorizer:
        from setpoint.apiserver.authorization import WebhookOptions, nanoseconds
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
        return self._webhook_authorizer(endpoint, options, nanoseconds(hook["timeout"]) / 1e9, conditions)

    def _webhook_authorizer(
        self, endpoint: Endpoint, options: WebhookOptions, timeout: float, conditions: list[str]
    ) -> WebhookAuthorizer:
        from setpoint.apiserver.authorization import WebhookAuthorizer
        from setpoint.apiserver.kubeconfig_webhooks import ReviewWebhook

        clock, matching = self._clock, None
        if conditions:
            from setpoint.apiserver.authorization import MatchConditions

            matching = MatchConditions(conditions)
        webhook = ReviewWebhook(self._servers, endpoint, clock, self._ids, timeout)
        return WebhookAuthorizer(webhook, clock, options, matching)

    async def changed(self, content: bytes) -> bool:
        """Apply new content of the file; an invalid file changes nothing."""
        from setpoint.apiserver.authorization import read_authorization
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
            authorizers = self._authorizers(entries)
        except (FileProblem, ConfigError) as problem:
            log.error("reloading authorization config: %s", problem)
            return True
        self._entries = entries
        self.chain.replace(authorizers)
        log.info("reloaded authz config")
        return True


def wire_access(
    parts: PartsBuilder, config: ApiServerConfig, servers: RemoteServers, token_use: KeyedLoop
) -> Authorizers:
    """Add authentication and authorization to the parts and return the authorizers. Raises ConfigError.

    Webhooks and token issuers are reached through `servers`; `token_use` records the use of the tokens of Secrets."""
    api = parts.resources
    policy = Policy(api.caches)
    authorizers = Authorizers(
        parts, config, servers, lambda mode: _authorizer(mode, policy, api), always=[parts.own_identities]
    )
    authorizer = authorizers.load()
    if "RBAC" in authorizers.types:
        _add_role_guards(parts, authorizer, policy)
    _add_reference_guards(parts, authorizer)

    def lookup(plural: str, namespace: str, name: str) -> Entry | None:
        cache = api.caches.get(f"core/{plural}/")
        if cache is None:
            return None
        return cache.get(f"{cache.prefix}{namespace}/{name}" if namespace else cache.prefix + name)

    _wire_tokens(parts, config, lookup, token_use)
    wire_authentication(parts, config, servers, lookup)
    return authorizers


def _authorizer(mode: str, policy: Policy, api: ApiResources) -> Authorizer:
    if mode == "AlwaysAllow":
        return AlwaysAllow()
    if mode == "Node":
        return NodeAuthorizer(NodeRelations(api.caches))
    return AlwaysDeny() if mode == "AlwaysDeny" else RbacAuthorizer(policy)


def _add_role_guards(parts: PartsBuilder, authorizer: AuthorizerChain, policy: Policy) -> None:
    roles, bindings = RoleGuard(policy, authorizer), BindingGuard(policy, authorizer)
    for plural, guard in (
        ("roles", roles),
        ("clusterroles", roles),
        ("rolebindings", bindings),
        ("clusterrolebindings", bindings),
    ):
        parts.hooks[(GROUP, plural)] = guard


def _add_reference_guards(parts: PartsBuilder, authorizer: AuthorizerChain) -> None:
    api = parts.resources
    reader, registration = CacheReader(api), "admissionregistration.k8s.io"

    def plural_of(group: str, version: str, kind: str) -> str:
        for (of_group, of_version, plural), resource in api.served.items():
            if (of_group, of_version, resource.kind) == (group, version, kind):
                return plural
        return ""

    for plural in ("validatingadmissionpolicies", "mutatingadmissionpolicies"):
        policy = partial(reader.get, registration, plural, "")
        parts.hooks[(registration, plural)] = PolicyGuard(authorizer, plural_of)
        bindings = plural.replace("policies", "policybindings")
        parts.hooks[(registration, bindings)] = PolicyBindingGuard(authorizer, plural_of, policy)
    parts.hooks[("resource.k8s.io", "resourceclaims")] = ClaimGuard(reader, authorizer)
    parts.hooks[("resource.k8s.io", "resourceclaimtemplates")] = AdminAccessGuard(reader)


@cache
def _in_memory_signing_key() -> SigningKey:
    """Return the key of all servers of this process that have no files: generating one is slow, and a copy of a cluster
    must accept the tokens of its original."""
    return SigningKey(None)


def signing_key(config: ApiServerConfig) -> SigningKey:
    """Return the key that signs service account tokens."""
    if config.access.service_account_signing_key_file:
        return SigningKey(Path(config.access.service_account_signing_key_file), generate=False)
    if config.data_dir == NO_DATA_DIR:
        return _in_memory_signing_key()
    return SigningKey((config.cert_dir or config.data_dir / "pki") / "sa.key")


def _token_keys(config: ApiServerConfig) -> TokenKeys:
    """Return the signing and verifying keys. Files that flags name are read now, so that errors are reported at start.
    Raises ConfigError."""
    access, signing = config.access, signing_key(config)
    if access.service_account_signing_key_file:
        try:
            _ = signing.algorithm
        except OSError as error:
            raise ConfigError(f"failed to parse service-account-issuer-key-file: {open_error(error)}") from None
        except (ValueError, TypeError):
            raise ConfigError(
                "failed to parse service-account-issuer-key-file: error reading private key file "
                f"{access.service_account_signing_key_file}: data does not contain a valid RSA or ECDSA private key"
            ) from None
    found: list[VerifyingKey] = []
    for path in access.service_account_key_file:
        try:
            found += verifying_keys(Path(path).read_bytes())
        except OSError as error:
            raise ConfigError(f"failed to parse service-account-key-file: {open_error(error)}") from None
        except ValueError as error:
            raise ConfigError(f"error reading public key file {path}: {error}") from None
    return TokenKeys(signing, (lambda: found) if found else None)


def _wire_tokens(parts: PartsBuilder, config: ApiServerConfig, lookup: Lookup, token_use: KeyedLoop) -> None:
    api = parts.resources
    audiences, access = config.api_audiences or config.service_account_issuer, config.access
    tokens = ServiceAccountTokens(
        _token_keys(config),
        config.service_account_issuer,
        audiences,
        lookup,
        api.clock,
        lambda namespace, name: token_use.due(f"{namespace}/{name}"),
    )
    parts.authenticator.add(tokens)
    parts.authenticator.set_audiences(audiences)
    requests = TokenRequests(
        tokens,
        lookup,
        longest=int(access.service_account_max_token_expiration),
        extends=access.service_account_extend_token_expiration,
    )
    parts.subresource_handlers[("", "serviceaccounts", "token")] = {"create": requests.create}
    documents = IssuerDocuments(api, tokens, access.service_account_jwks_uri, config.advertise_address)
    parts.paths[CONFIGURATION] = documents.configuration
    parts.paths[KEYS] = documents.keys


def wire_reviews(parts: PartsBuilder, admission: Chain, authorizer: AuthorizerChain) -> None:
    """Serve TokenReview, SubjectAccessReview and their relatives."""
    identity, access = IdentityReviews(admission, parts.authenticator), AccessReviews(admission, authorizer)
    parts.computed[("authentication.k8s.io", "tokenreviews")] = identity.token
    parts.computed[("authentication.k8s.io", "selfsubjectreviews")] = identity.self_
    for plural, handler in (
        ("subjectaccessreviews", access.subject),
        ("localsubjectaccessreviews", access.subject),
        ("selfsubjectaccessreviews", access.self_),
        ("selfsubjectrulesreviews", access.rules),
    ):
        parts.computed[("authorization.k8s.io", plural)] = handler
