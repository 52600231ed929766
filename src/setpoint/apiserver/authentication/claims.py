"""Who the claims of a token say that somebody is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.apiserver.authentication.claim_expressions import LIMIT, as_value, compiled
from setpoint.apiserver.filters.authenticate import CREDENTIAL, TokenRefused, with_everybody
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.cel import Program
from setpoint.meta.cel.values import is_list
from setpoint.meta.decode_report import describe

Obj = Mapping[str, Any]
Claims = dict[str, Any]
_NOT_TEXTS = "expression must return a string or a list of strings"


class ClaimMapping:
    """What one issuer's configuration makes of claims."""

    def __init__(self, authenticator: Obj) -> None:
        mappings: Obj = authenticator["claimMappings"]
        self._username: Obj = mappings.get("username") or {}
        self._groups: Obj = mappings.get("groups") or {}
        self._uid: Obj = mappings.get("uid") or {}
        self._extra: list[Obj] = mappings.get("extra") or []
        rules: list[Obj] = authenticator.get("claimValidationRules") or []
        self._required = {rule["claim"]: rule.get("requiredValue", "") for rule in rules if rule.get("claim")}
        self._rules = [rule for rule in rules if rule.get("expression")]
        self._user_rules: list[Obj] = authenticator.get("userValidationRules") or []

    @property
    def groups_claim(self) -> str:
        return str(self._groups.get("claim", ""))

    def user(self, claims: Claims) -> UserInfo:
        """Raises TokenRefused."""
        value = as_value(claims)
        name = self._name(claims, value)
        groups = self._groups_of(claims, value)
        uid = self._uid_of(claims, value)
        extra = self._extra_of(claims, value)
        self._check_required(claims)
        _check_rules(self._rules, "claims", value, "oidc: error evaluating claim validation expression")
        if self._user_rules:
            shown = {"username": name, "uid": uid, "groups": groups, "extra": {key: list(extra[key]) for key in extra}}
            _check_rules(self._user_rules, "user", as_value(shown), "oidc: error evaluating user info validation rule")
        return UserInfo(name, uid, with_everybody(name, groups), extra)

    def _name(self, claims: Claims, value: Any) -> str:
        if self._username.get("expression"):
            about = "oidc: error evaluating username claim expression"
            name = _evaluated(self._username["expression"], "claims", value, about)
            if not isinstance(name, str):
                raise TokenRefused(f"{about}: username claim expression must return a string")
            if not name:
                raise TokenRefused("oidc: empty username via CEL expression is not allowed")
            return name
        claim = self._username["claim"]
        name = _text(claims, claim, f'oidc: parse username claims "{claim}"')
        if claim == "email" and "email_verified" in claims:
            verified = claims["email_verified"]
            if not isinstance(verified, bool | None):
                raise TokenRefused(f"oidc: parse 'email_verified' claim: {_mismatch(verified, 'bool')}")
            if not verified:
                raise TokenRefused("oidc: email not verified")
        return f"{self._username.get('prefix') or ''}{name}"

    def _groups_of(self, claims: Claims, value: Any) -> list[str]:
        claim = self._groups.get("claim")
        if claim and claim in claims:
            given = claims[claim]
            if isinstance(given, list) and all(isinstance(one, str | None) for one in given):
                groups = [one or "" for one in given]
            elif isinstance(given, str):
                groups = [given]
            elif given is None:
                groups = []
            else:
                raise TokenRefused(f'oidc: parse groups claim "{claim}": {_mismatch(given, "string")}')
            prefix = self._groups.get("prefix") or ""
            return [f"{prefix}{group}" for group in groups]
        if not self._groups.get("expression"):
            return []
        about = "oidc: error evaluating group claim expression"
        return _texts(_evaluated(self._groups["expression"], "claims", value, about), about)

    def _uid_of(self, claims: Claims, value: Any) -> str:
        claim = self._uid.get("claim")
        if claim:
            return _text(claims, claim, f'oidc: parse uid claim "{claim}"')
        if not self._uid.get("expression"):
            return ""
        about = "oidc: error evaluating uid claim expression"
        uid = _evaluated(self._uid["expression"], "claims", value, about)
        if not isinstance(uid, str):
            raise TokenRefused(f"{about}: uid claim expression must return a string")
        return uid

    def _extra_of(self, claims: Claims, value: Any) -> dict[str, Sequence[str]]:
        extra: dict[str, Sequence[str]] = {}
        if claims.get("jti") and isinstance(claims["jti"], str):
            extra[CREDENTIAL] = (f"JTI={claims['jti']}",)
        for mapping in self._extra:
            expression = mapping["valueExpression"]
            about = f"oidc: error evaluating extra claim expression: {expression}"
            values = _texts(_evaluated(expression, "claims", value, ""), about)
            if values:
                extra[mapping["key"]] = tuple(values)
        return extra

    def _check_required(self, claims: Claims) -> None:
        for claim, wanted in self._required.items():
            if claim not in claims:
                raise TokenRefused(f"oidc: required claim {claim} not present in ID token")
            value = _text(claims, claim, f"oidc: parse claim {claim}")
            if value != wanted:
                raise TokenRefused(f"oidc: required claim {claim} value does not match. Got = {value}, want = {wanted}")


def _mismatch(value: Any, wanted: str) -> str:
    return f"json: cannot unmarshal {describe(value)} into Go value of type {wanted}"


def _text(claims: Claims, claim: str, about: str) -> str:
    if claim not in claims:
        raise TokenRefused(f"{about}: claim not present")
    value = claims[claim]
    if not isinstance(value, str | None):
        raise TokenRefused(f"{about}: {_mismatch(value, 'string')}")
    return value or ""


def _evaluated(text: str, variable: str, value: Any, about: str) -> Any:
    program: Program = compiled(text, variable)
    outcome = program.evaluate({variable: value}, LIMIT)
    if outcome.error is not None:
        failed = f"expression '{text}' resulted in error: {outcome.error}"
        raise TokenRefused(f"{about}: {failed}" if about else failed)
    return outcome.value


def _texts(value: Any, about: str) -> list[str]:
    """A text or several; empty ones do not count."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [value]
    if not is_list(value):
        raise TokenRefused(f"{about}: {_NOT_TEXTS}")
    found = list(value)
    if not all(isinstance(one, str) for one in found):
        raise TokenRefused(f"{about}: {_NOT_TEXTS}")
    return [one for one in found if one]


def _check_rules(rules: Sequence[Obj], variable: str, value: Any, about: str) -> None:
    for rule in rules:
        expression = rule["expression"]
        holds = _evaluated(expression, variable, value, about)
        if not isinstance(holds, bool):
            raise TokenRefused(f"{about}: validation expression must return a boolean")
        if not holds:
            raise TokenRefused(f"{about}: validation expression '{expression}' failed: {rule.get('message', '')}")
