"""Who may come in and do what: authorization modes, service account tokens, reviews."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from setpoint.apiserver.far_server import FarServers
from setpoint.apiserver.filters.authorize import AlwaysAllow, AlwaysDeny, Authorizer, AuthorizerChain
from setpoint.apiserver.filters.device_claims import AdminAccessGuard, ClaimGuard
from setpoint.apiserver.filters.escalation import BindingGuard, RoleGuard
from setpoint.apiserver.filters.node_authorizer import NodeAuthorizer
from setpoint.apiserver.filters.node_relations import NodeRelations
from setpoint.apiserver.filters.policy_parameters import PolicyBindingGuard, PolicyGuard
from setpoint.apiserver.filters.rbac import GROUP, Policy, RbacAuthorizer
from setpoint.apiserver.handlers.reviews.access import AccessReviews
from setpoint.apiserver.handlers.reviews.identity import IdentityReviews
from setpoint.apiserver.handlers.reviews.issuer import CONFIGURATION, KEYS, IssuerDocuments
from setpoint.apiserver.handlers.reviews.tokenrequest import TokenRequests
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.signing import SigningKey, TokenKeys
from setpoint.apiserver.tokens import Lookup, ServiceAccountTokens
from setpoint.apiserver.watch_cache import Entry
from setpoint.cluster.authentication import wire_authentication
from setpoint.cluster.authorization import Authorizers
from setpoint.cluster.config import NOWHERE, ApiServerConfig, ConfigError, unopened
from setpoint.meta.token_key import VerifyingKey, verifying_keys


def wire_access(api: ApiServer, config: ApiServerConfig, servers: FarServers) -> frozenset[str]:
    """`servers`: how webhooks and issuers of tokens are reached. Says which authorizers are in force, webhooks aside.
    Raises ConfigError."""
    policy = Policy(api.caches)
    authorizers = Authorizers(
        api, config, servers, lambda mode: _authorizer(mode, policy, api), always=[api.own_identities]
    )
    api.authorizer = AuthorizerChain(authorizers.initial())
    if "RBAC" in authorizers.types:
        _guard(api, policy)
    _guard_references(api)

    def lookup(plural: str, namespace: str, name: str) -> Entry | None:
        cache = api.caches.get(f"core/{plural}/")
        if cache is None:
            return None
        return cache.get(f"{cache.prefix}{namespace}/{name}" if namespace else cache.prefix + name)

    _tokens(api, config, lookup)
    wire_authentication(api, config, servers, lookup)
    _reviews(api)
    return authorizers.types


def _authorizer(mode: str, policy: Policy, api: ApiServer) -> Authorizer:
    if mode == "AlwaysAllow":
        return AlwaysAllow()
    if mode == "Node":
        return NodeAuthorizer(NodeRelations(api.caches))
    return AlwaysDeny() if mode == "AlwaysDeny" else RbacAuthorizer(policy)


def _guard(api: ApiServer, policy: Policy) -> None:
    roles, bindings = RoleGuard(policy, api.authorizer), BindingGuard(policy, api.authorizer)
    for plural, guard in (
        ("roles", roles), ("clusterroles", roles), ("rolebindings", bindings), ("clusterrolebindings", bindings)
    ):  # fmt: skip
        api.env.hooks[(GROUP, plural)] = guard


def _guard_references(api: ApiServer) -> None:
    reader, registration = CacheReader(api), "admissionregistration.k8s.io"

    def plural_of(group: str, version: str, kind: str) -> str:
        for (of_group, of_version, plural), resource in api.resources.items():
            if (of_group, of_version, resource.kind) == (group, version, kind):
                return plural
        return ""

    for plural in ("validatingadmissionpolicies", "mutatingadmissionpolicies"):
        policy = partial(reader.get, registration, plural, "")
        api.env.hooks[(registration, plural)] = PolicyGuard(api.authorizer, plural_of)
        bindings = plural.replace("policies", "policybindings")
        api.env.hooks[(registration, bindings)] = PolicyBindingGuard(api.authorizer, plural_of, policy)
    api.env.hooks[("resource.k8s.io", "resourceclaims")] = ClaimGuard(reader, api.authorizer)
    api.env.hooks[("resource.k8s.io", "resourceclaimtemplates")] = AdminAccessGuard(reader)


@cache
def _in_memory() -> SigningKey:
    """Of all servers of this process that have no files: it takes long to make one, and a copy of a cluster is to know
    the tokens of its original."""
    return SigningKey(None)


def signing_key(config: ApiServerConfig) -> SigningKey:
    """Of the tokens of service accounts."""
    if config.access.service_account_signing_key_file:
        return SigningKey(Path(config.access.service_account_signing_key_file), is_ours=False)
    if config.data_dir == NOWHERE:
        return _in_memory()
    return SigningKey((config.cert_dir or config.data_dir / "pki") / "sa.key")


def _token_keys(config: ApiServerConfig) -> TokenKeys:
    """Files that somebody names are read at once, so that a mistake is told at once. Raises ConfigError."""
    told, signing = config.access, signing_key(config)
    if told.service_account_signing_key_file:
        try:
            _ = signing.algorithm
        except OSError as error:
            raise ConfigError(f"failed to parse service-account-issuer-key-file: {unopened(error)}") from None
        except (ValueError, TypeError):
            raise ConfigError(
                "failed to parse service-account-issuer-key-file: error reading private key file "
                f"{told.service_account_signing_key_file}: data does not contain a valid RSA or ECDSA private key"
            ) from None
    found: list[VerifyingKey] = []
    for path in told.service_account_key_file:
        try:
            found += verifying_keys(Path(path).read_bytes())
        except OSError as error:
            raise ConfigError(f"failed to parse service-account-key-file: {unopened(error)}") from None
        except ValueError as error:
            raise ConfigError(f"error reading public key file {path}: {error}") from None
    return TokenKeys(signing, (lambda: found) if found else None)


def _tokens(api: ApiServer, config: ApiServerConfig, lookup: Lookup) -> None:
    audiences, told = config.api_audiences or config.service_account_issuer, config.access
    tokens = ServiceAccountTokens(
        _token_keys(config), config.service_account_issuer, audiences, lookup, api.clock,
        lambda namespace, name: api.secret_token_used(namespace, name),
    )  # fmt: skip
    api.authenticator.add(tokens)
    api.authenticator.serve(audiences)
    requests = TokenRequests(
        tokens, lookup, longest=int(told.service_account_max_token_expiration),
        extends=told.service_account_extend_token_expiration,
    )  # fmt: skip
    api.subresources[("", "serviceaccounts", "token")] = {"create": requests.create}
    documents = IssuerDocuments(api, tokens, told.service_account_jwks_uri, config.advertise_address)
    api.paths[CONFIGURATION] = documents.configuration
    api.paths[KEYS] = documents.keys


def _reviews(api: ApiServer) -> None:
    identity, access = IdentityReviews(api), AccessReviews(api)
    api.reviews[("authentication.k8s.io", "tokenreviews")] = identity.token
    api.reviews[("authentication.k8s.io", "selfsubjectreviews")] = identity.self_
    for plural, handler in (
        ("subjectaccessreviews", access.subject),
        ("localsubjectaccessreviews", access.subject),
        ("selfsubjectaccessreviews", access.self_),
        ("selfsubjectrulesreviews", access.rules),
    ):
        api.reviews[("authorization.k8s.io", plural)] = handler
