"""Who may come in and do what: authorization modes, service account tokens, reviews."""

from __future__ import annotations

from setpoint.apiserver.filters.authorize import AlwaysAllow, AlwaysDeny, Authorizer, AuthorizerChain
from setpoint.apiserver.filters.escalation import BindingGuard, RoleGuard
from setpoint.apiserver.filters.node_authorizer import NodeAuthorizer
from setpoint.apiserver.filters.node_relations import NodeRelations
from setpoint.apiserver.filters.rbac import GROUP, Policy, RbacAuthorizer
from setpoint.apiserver.handlers.reviews.access import AccessReviews
from setpoint.apiserver.handlers.reviews.identity import IdentityReviews
from setpoint.apiserver.handlers.reviews.issuer import CONFIGURATION, KEYS, IssuerDocuments
from setpoint.apiserver.handlers.reviews.tokenrequest import TokenRequests
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.signing import SigningKey
from setpoint.apiserver.tokens import ServiceAccountTokens
from setpoint.apiserver.watch_cache import Entry
from setpoint.cluster.config import NOWHERE, ApiServerConfig


def wire_access(api: ApiServer, config: ApiServerConfig) -> None:
    policy = Policy(api.caches)
    modes = [_authorizer(mode, policy, api) for mode in config.authorization_mode]
    api.authorizer = AuthorizerChain([*modes, api.own_identities])
    if "RBAC" in config.authorization_mode:
        _guard(api, policy)
    _tokens(api, config)
    _reviews(api)


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


def signing_key(config: ApiServerConfig) -> SigningKey:
    """Of the tokens of service accounts."""
    if config.data_dir == NOWHERE:
        return SigningKey(None)
    return SigningKey((config.cert_dir or config.data_dir / "pki") / "sa.key")


def _tokens(api: ApiServer, config: ApiServerConfig) -> None:
    def lookup(plural: str, namespace: str, name: str) -> Entry | None:
        cache = api.caches.get(f"core/{plural}/")
        if cache is None:
            return None
        return cache.get(f"{cache.prefix}{namespace}/{name}" if namespace else cache.prefix + name)

    audiences = config.api_audiences or [config.service_account_issuer]
    tokens = ServiceAccountTokens(
        signing_key(config), config.service_account_issuer, audiences, lookup, api.clock,
        lambda namespace, name: api.secret_token_used(namespace, name),
    )  # fmt: skip
    api.authenticator.add(tokens)
    api.authenticator.serve(audiences)
    api.subresources[("", "serviceaccounts", "token")] = {"create": TokenRequests(tokens, lookup).create}
    documents = IssuerDocuments(api, tokens)
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
