"""What a server is told about who may come in: flags with upstream's names and meanings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Obj = dict[str, Any]
_LONGEST_LIFE = 2.0**32
_ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512")
_VERSIONS = ("v1", "v1beta1")


@dataclass(slots=True, eq=False, repr=False, match_args=False)
class AccessConfig:
    enable_bootstrap_token_auth: bool = False
    authentication_config: str = ""
    oidc_issuer_url: str = ""
    oidc_client_id: str = ""
    oidc_ca_file: str = ""
    oidc_username_claim: str = "sub"
    oidc_username_prefix: str = ""
    oidc_groups_claim: str = ""
    oidc_groups_prefix: str = ""
    oidc_signing_algs: list[str] = field(default_factory=lambda: ["RS256"])
    oidc_required_claim: list[str] = field(default_factory=list)
    authentication_token_webhook_config_file: str = ""
    authentication_token_webhook_version: str = "v1beta1"
    authentication_token_webhook_cache_ttl: float = 120.0
    authorization_config: str = ""
    authorization_webhook_config_file: str = ""
    authorization_webhook_version: str = "v1beta1"
    authorization_webhook_cache_authorized_ttl: float = 300.0
    authorization_webhook_cache_unauthorized_ttl: float = 30.0
    requestheader_client_ca_file: str = ""
    requestheader_allowed_names: list[str] = field(default_factory=list)
    requestheader_username_headers: list[str] = field(default_factory=list)
    requestheader_uid_headers: list[str] = field(default_factory=list)
    requestheader_group_headers: list[str] = field(default_factory=list)
    requestheader_extra_headers_prefix: list[str] = field(default_factory=list)
    service_account_key_file: list[str] = field(default_factory=list)
    service_account_signing_key_file: str = ""
    service_account_jwks_uri: str = ""
    service_account_max_token_expiration: float = 0.0
    service_account_extend_token_expiration: bool = True

    def problems(self, modes: Sequence[str]) -> list[str]:
        """What cannot work, each as a sentence. `modes`: those of --authorization-mode."""
        found = [*self._oidc_problems(), *self._header_problems(), *self._webhook_problems(modes)]
        longest, uri = self.service_account_max_token_expiration, self.service_account_jwks_uri
        if longest and not 3600 <= longest <= _LONGEST_LIFE:
            found.append("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
        if uri and not uri.startswith("https://"):
            found.append(f"service-account-jwks-uri requires https scheme, parsed as: {uri}")
        return found

    def _oidc_problems(self) -> Iterator[str]:
        plain = AccessConfig()
        used = any(getattr(self, name) != getattr(plain, name) for name in self.__slots__ if name.startswith("oidc_"))
        if used and self.authentication_config:
            yield "authentication-config file and oidc-* flags are mutually exclusive"
        elif used and not (self.oidc_issuer_url and self.oidc_client_id):
            yield "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
        for algorithm in self.oidc_signing_algs:
            if algorithm not in _ALGORITHMS:
                yield f'oidc: unsupported signing alg: "{algorithm}"'
        for claim in self.oidc_required_claim:
            if "=" not in claim:
                yield f"--oidc-required-claim: malformed pair, expect string=string: {claim}"

    def _header_problems(self) -> Iterator[str]:
        for flag in ("username-headers", "group-headers", "extra-headers-prefix", "allowed-names", "uid-headers"):
            values: list[str] = getattr(self, f"requestheader_{flag.replace('-', '_')}")
            if any(not value.strip() for value in values):
                yield f'empty value in "requestheader-{flag}"'
        uids = [header.lower() for header in self.requestheader_uid_headers]
        if uids and "x-remote-uid" not in uids:
            yield (
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - "
                "API aggregation will not work"
            )

    def _webhook_problems(self, modes: Sequence[str]) -> Iterator[str]:
        known = 'supported versions are "v1", "v1beta1"'
        version = self.authentication_token_webhook_version
        if self.authentication_token_webhook_config_file and version not in _VERSIONS:
            yield f'unsupported authentication webhook version "{version}", {known}'
        version = self.authorization_webhook_version
        if "Webhook" in modes and version not in _VERSIONS:
            yield f'unsupported webhook authorizer version "{version}", {known}'
        if "Webhook" in modes and not self.authorization_webhook_config_file:
            yield "authorization-mode Webhook's authorization config file not passed"
        if self.authorization_config and (modes or self.authorization_webhook_config_file):
            yield (
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* "
                "flags are defined"
            )
        elif self.authorization_webhook_config_file and "Webhook" not in modes:
            yield "cannot specify --authorization-webhook-config-file without mode Webhook"

    def flag_authenticator(self) -> Obj | None:
        """The issuer of the --oidc-* flags, as the configuration file would have it. Raises OSError, ValueError where
        --oidc-ca-file cannot be read."""
        if not self.oidc_issuer_url:
            return None
        prefix = self.oidc_username_prefix
        if not prefix and self.oidc_username_claim != "email":
            prefix = f"{self.oidc_issuer_url}#"
        issuer: Obj = {"url": self.oidc_issuer_url, "audiences": [self.oidc_client_id]}
        if self.oidc_ca_file:
            with open(self.oidc_ca_file, encoding="utf-8") as file:
                issuer["certificateAuthority"] = file.read()
        username = {"claim": self.oidc_username_claim, "prefix": "" if prefix == "-" else prefix}
        mappings: Obj = {"username": username}
        if self.oidc_groups_claim:
            mappings["groups"] = {"claim": self.oidc_groups_claim, "prefix": self.oidc_groups_prefix}
        rules = [
            {"claim": claim, "requiredValue": value}
            for claim, value in (pair.split("=", 1) for pair in self.oidc_required_claim)
        ]
        return {"issuer": issuer, "claimMappings": mappings, "claimValidationRules": rules}
