"""The flags of an API server for authentication and authorization, with upstream's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.cli.flags import Flag, Values, about, array, duration, switch, text, texts

if TYPE_CHECKING:
    from setpoint.cluster.access_config import AccessConfig

ACCESS_FLAGS: tuple[Flag, ...] = (
    *about(
        "Service account token",
        array("service-account-key-file", help="Keys that service account tokens are verified with; may be repeated."),
        text("service-account-signing-key-file", help="The key that they are signed with; by default a made one."),
        text("service-account-jwks-uri", help="Where others find the keys, if not at this server."),
        duration("service-account-max-token-expiration", help="For how long a token may be good; by default no limit."),
        switch("service-account-extend-token-expiration", default=True, help="Let tokens of Pods be used for a year."),
    ),
    *about(
        "Authentication",
        switch("enable-bootstrap-token-auth", help="Let nodes in with tokens that Secrets in kube-system hold."),
        text("authentication-config", help="File with an AuthenticationConfiguration: issuers, what is anonymous."),
        text("authentication-token-webhook-config-file", help="Kubeconfig of a webhook that knows tokens."),
        text("authentication-token-webhook-version", default="v1beta1", choices=("v1", "v1beta1"),
             help="Of the TokenReview that it is asked with."),
        duration("authentication-token-webhook-cache-ttl", default=120.0, help="How long its answers are kept."),
    ),
    *about(
        "OpenID Connect",
        text("oidc-issuer-url", help="Issuer of OpenID Connect tokens, an https URL."),
        text("oidc-client-id", help="The audience that those tokens must be for."),
        text("oidc-ca-file", help="Authority of the issuer's certificate; by default those that the machine trusts."),
        text("oidc-username-claim", default="sub", help="The claim that is the user's name."),
        text("oidc-username-prefix", help="Stands before it; - is none. By default the issuer, unless it is an email."),
        text("oidc-groups-claim", help="The claim that holds the user's groups."),
        text("oidc-groups-prefix", help="Stands before each of them."),
        texts("oidc-signing-algs", default=("RS256",), help="What tokens may be signed with: RS256, ES256, PS256, ..."),
        array("oidc-required-claim", help="A claim that tokens must have, as claim=value; repeat it for several."),
    ),
    *about(
        "Front proxy",
        text("requestheader-client-ca-file", help="CA of the proxies that may set the user of a request."),
        texts("requestheader-allowed-names", help="Common names that such proxies have; by default any."),
        texts("requestheader-username-headers", help="Headers with the user's name, such as X-Remote-User."),
        texts("requestheader-uid-headers", help="Headers with the user's uid, such as X-Remote-Uid."),
        texts("requestheader-group-headers", help="Headers with the user's groups, such as X-Remote-Group."),
        texts("requestheader-extra-headers-prefix", help="What headers with more begin with, such as X-Remote-Extra-."),
    ),
    *about(
        "Authorization",
        text("authorization-config", help="File with an AuthorizationConfiguration, instead of --authorization-mode."),
        text("authorization-webhook-config-file", help="Kubeconfig of a webhook that decides; for mode Webhook."),
        text("authorization-webhook-version", default="v1beta1", choices=("v1", "v1beta1"),
             help="Of the SubjectAccessReview that it is asked with."),
        duration("authorization-webhook-cache-authorized-ttl", default=300.0, help="How long a yes is kept."),
        duration("authorization-webhook-cache-unauthorized-ttl", default=30.0, help="How long anything else is kept."),
    ),
)  # fmt: skip


def access_config(flags: Values) -> AccessConfig:
    from setpoint.cluster.access_config import AccessConfig

    return AccessConfig(**{flag.key: getattr(flags, flag.key) for flag in ACCESS_FLAGS})
