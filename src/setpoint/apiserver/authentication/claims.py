"""Claims of OpenID Connect tokens: their types, the expressions over them, and the user that they map to.

Type errors have the messages of upstream's decoder, which stops at the first wrong audience or time and reports other
mistakes afterwards. Null counts as a missing claim in most places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

from setpoint.apiserver.filters.authenticate import CREDENTIAL, TokenRefused, with_authenticated_group
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.cel import (
    BOOL,
    STRING,
    CelError,
    CelProblem,
    Environment,
    Program,
    StructType,
    list_of,
    map_of,
)
from setpoint.meta.cel.environment import kubernetes_environment
from setpoint.meta.cel.lexer import unescape_property
from setpoint.meta.cel.operators import equals
from setpoint.meta.cel.syntax import Call, Expr, Ident, Literal, Select, walk
from setpoint.meta.cel.types import ANY, declared_name
from setpoint.meta.cel.values import MISSING, TypedList, TypedMap, is_list, is_map
from setpoint.meta.decode_report import describe
from setpoint.meta.goformat import quote
from setpoint.meta.objects import ObjView

Claims = dict[str, Any]
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,400})(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,9})?")
_TIME_CLAIMS = ("exp", "iat", "nbf")
_STRING_CLAIMS = ("iss", "sub", "nonce", "at_hash")
_MAP_CLAIMS = {"_claim_names": "string", "_claim_sources": "oidc.claimSource"}
_COST_LIMIT = 10_000_000
"""Cost limit of one evaluation: tokens are limited in size, and expressions come from an administrator."""
_USER = StructType(
    "kubernetes.UserInfo",
    {"username": STRING, "uid": STRING, "groups": list_of(STRING), "extra": map_of(STRING, list_of(STRING))},
)
_NOT_STRINGS = "expression must return a string or a list of strings"


def check_types(claims: Claims, payload: bytes) -> None:
    """Check the types of the registered claims; `payload` is their encoded form. Raises TokenRefused."""
    for name, value in claims.items():
        if name == "aud":
            _check_audience(value)
        elif name in _TIME_CLAIMS:
            _check_time(name, value, payload)
    for name, value in claims.items():
        if value is None:
            continue
        if name in _STRING_CLAIMS and not isinstance(value, str):
            raise _type_error(value, f"idToken.{name}", "string")
        if name in _MAP_CLAIMS:
            _check_map(name, value)


def audiences(claims: Claims) -> list[str]:
    if "aud" not in claims:
        return []
    given = claims["aud"]
    return [one or "" for one in given] if isinstance(given, list) else [given or ""]


def timestamp(value: Any) -> float | None:
    """Return the seconds of a checked time claim, or None if it is missing."""
    return None if value is None else float(value)


def _check_audience(value: Any) -> None:
    if not isinstance(value, list | str | None):
        raise _type_error(value, "idToken.aud", "[]string")
    for one in value if isinstance(value, list) else ():
        if not isinstance(one, str | None):
            raise _type_error(one, "idToken.aud", "string")


def _check_time(name: str, value: Any, payload: bytes) -> None:
    if value is None:
        if name != "nbf":
            raise _unmarshal_error('strconv.ParseFloat: parsing "": invalid syntax')
        return
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            shown = quote(quote(value))
            raise _unmarshal_error(f"json: invalid number literal, trying to unmarshal {shown} into Number")
        number_text = value
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise _type_error(value, f"idToken.{name}", "json.Number")
    else:
        number_text = ""
    if abs(float(value)) == float("inf"):
        raise _unmarshal_error(
            f"strconv.ParseFloat: parsing {quote(number_text or _original_number(name, payload))}: value out of range"
        )


def _original_number(name: str, payload: bytes) -> str:
    found = re.search(rb'"%s"\s*:\s*([-+.0-9eE]{1,400})' % name.encode(), payload)
    return found[1].decode() if found else ""


def _check_map(name: str, value: Any) -> None:
    of = _MAP_CLAIMS[name]
    if not isinstance(value, dict):
        raise _type_error(value, f"idToken.{name}", f"map[string]{of}")
    for one in value.values():
        if one is None:
            continue
        if of == "string":
            if not isinstance(one, str):
                raise _type_error(one, f"idToken.{name}", of)
        elif not isinstance(one, dict):
            raise _type_error(one, f"idToken.{name}", of)
        else:
            for key in ("endpoint", "access_token"):
                if not isinstance(one.get(key), str | None):
                    raise _type_error(one[key], f"claimSource.{name}.{key}", "string")


def _type_error(value: Any, field: str, of: str) -> TokenRefused:
    return _unmarshal_error(f"json: cannot unmarshal {describe(value)} into Go struct field {field} of type {of}")


def _unmarshal_error(why: str) -> TokenRefused:
    return TokenRefused(f"oidc: failed to unmarshal claims: {why}")


class InvalidExpression(ValueError):
    """An expression cannot be used; the message is upstream's."""


@cache
def _environment(variable: str) -> Environment:
    if variable == "claims":
        return kubernetes_environment(stored=True).extended({"claims": map_of(STRING, ANY)})
    return kubernetes_environment(stored=True).extended({"user": _USER.type}, (_USER,))


@lru_cache(maxsize=256)
def compile_expression(text: str, variable: str, *, rule: bool = False) -> Program:
    """Compile an expression over `variable`, which is `claims` or `user`. With `rule`, it must be boolean. Raises
    InvalidExpression."""
    try:
        program = _environment(variable).compile(text)
    except CelProblem as problem:
        raise InvalidExpression(f"compilation failed: {problem}") from None
    except CelError as error:
        raise InvalidExpression(f"program instantiation failed: {error}") from None
    if rule and program.result != BOOL:
        raise InvalidExpression(f"must evaluate to {declared_name(BOOL)}")
    return program


def uses_claim(program: Program, claim: str) -> bool:
    return any(_is_claim(node, claim) for node in walk(program.tree))


def _is_claim(node: Expr, claim: str) -> bool:
    """Return whether the node is `claims.claim` or `claims.?claim`."""
    if isinstance(node, Select):
        return node.field == claim and isinstance(node.operand, Ident) and node.operand.name == "claims"
    if isinstance(node, Call) and node.function == "_?._" and len(node.arguments) == 2:
        of, field = node.arguments
        is_field = isinstance(field, Literal) and field.value == claim
        return is_field and isinstance(of, Ident) and of.name == "claims"
    return False


# -- values -----------------------------------------------------------------------------------------------------------


def _cel_value(value: Any) -> Any:
    """Convert JSON to CEL: every number is a double, and `a__dot__b` finds the key `a.b`."""
    if type(value) is int:
        return float(value)
    if isinstance(value, dict):
        return _Map(value)
    return _List(value) if isinstance(value, list) else value


class _Map(TypedMap):
    __slots__ = ("_raw",)

    def __init__(self, raw: dict[str, Any]) -> None:
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._raw)

    def find(self, key: Any) -> Any:
        if type(key) is not str:
            return MISSING
        if "__" in key:
            key = unescape_property(key) or key
        found = self._raw.get(key, MISSING)
        return found if found is MISSING else _cel_value(found)

    def equals(self, other: Any) -> bool:
        if not is_map(other) or len(other) != len(self):
            return False
        for key in self._raw:
            other_value = other.get(key, MISSING) if isinstance(other, dict) else other.find(key)
            if other_value is MISSING or not equals(_cel_value(self._raw[key]), other_value):
                return False
        return True


class _List(TypedList):
    __slots__ = ("_raw",)

    def __init__(self, raw: list[Any]) -> None:
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw)

    def __iter__(self) -> Iterator[Any]:
        return map(_cel_value, self._raw)

    def __getitem__(self, index: int) -> Any:
        return _cel_value(self._raw[index])

    def equals(self, other: Any) -> bool:
        return is_list(other) and len(other) == len(self) and all(map(equals, self, other))


class ClaimMapping:
    """The claim mappings and validation rules of one issuer."""

    def __init__(self, authenticator: ObjView) -> None:
        mappings: ObjView = authenticator["claimMappings"]
        self._username: ObjView = mappings.get("username") or {}
        self._groups: ObjView = mappings.get("groups") or {}
        self._uid: ObjView = mappings.get("uid") or {}
        self._extra: list[ObjView] = mappings.get("extra") or []
        rules: list[ObjView] = authenticator.get("claimValidationRules") or []
        self._required = {rule["claim"]: rule.get("requiredValue", "") for rule in rules if rule.get("claim")}
        self._rules = [rule for rule in rules if rule.get("expression")]
        self._user_rules: list[ObjView] = authenticator.get("userValidationRules") or []

    @property
    def groups_claim(self) -> str:
        return str(self._groups.get("claim", ""))

    def user(self, claims: Claims) -> UserInfo:
        """Return the user of a token. Raises TokenRefused."""
        value = _cel_value(claims)
        name = self._name(claims, value)
        groups = self._groups_of(claims, value)
        uid = self._uid_of(claims, value)
        extra = self._extra_of(claims, value)
        self._check_required(claims)
        _check_rules(self._rules, "claims", value, "oidc: error evaluating claim validation expression")
        if self._user_rules:
            shown = {"username": name, "uid": uid, "groups": groups, "extra": {key: list(extra[key]) for key in extra}}
            _check_rules(
                self._user_rules, "user", _cel_value(shown), "oidc: error evaluating user info validation rule"
            )
        return UserInfo(name, uid, with_authenticated_group(name, groups), extra)

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
        name = _string_claim(claims, claim, f'oidc: parse username claims "{claim}"')
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
        return _strings(_evaluated(self._groups["expression"], "claims", value, about), about)

    def _uid_of(self, claims: Claims, value: Any) -> str:
        claim = self._uid.get("claim")
        if claim:
            return _string_claim(claims, claim, f'oidc: parse uid claim "{claim}"')
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
            values = _strings(_evaluated(expression, "claims", value, ""), about)
            if values:
                extra[mapping["key"]] = tuple(values)
        return extra

    def _check_required(self, claims: Claims) -> None:
        for claim, wanted in self._required.items():
            if claim not in claims:
                raise TokenRefused(f"oidc: required claim {claim} not present in ID token")
            value = _string_claim(claims, claim, f"oidc: parse claim {claim}")
            if value != wanted:
                raise TokenRefused(f"oidc: required claim {claim} value does not match. Got = {value}, want = {wanted}")


def _mismatch(value: Any, wanted: str) -> str:
    return f"json: cannot unmarshal {describe(value)} into Go value of type {wanted}"


def _string_claim(claims: Claims, claim: str, about: str) -> str:
    if claim not in claims:
        raise TokenRefused(f"{about}: claim not present")
    value = claims[claim]
    if not isinstance(value, str | None):
        raise TokenRefused(f"{about}: {_mismatch(value, 'string')}")
    return value or ""


def _evaluated(text: str, variable: str, value: Any, about: str) -> Any:
    program: Program = compile_expression(text, variable)
    outcome = program.evaluate({variable: value}, _COST_LIMIT)
    if outcome.error is not None:
        failed = f"expression '{text}' resulted in error: {outcome.error}"
        raise TokenRefused(f"{about}: {failed}" if about else failed)
    return outcome.value


def _strings(value: Any, about: str) -> list[str]:
    """Return the non-empty strings of a string or list."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [value]
    if not is_list(value):
        raise TokenRefused(f"{about}: {_NOT_STRINGS}")
    found = list(value)
    if not all(isinstance(one, str) for one in found):
        raise TokenRefused(f"{about}: {_NOT_STRINGS}")
    return [one for one in found if one]


def _check_rules(rules: Sequence[ObjView], variable: str, value: Any, about: str) -> None:
    for rule in rules:
        expression = rule["expression"]
        holds = _evaluated(expression, variable, value, about)
        if not isinstance(holds, bool):
            raise TokenRefused(f"{about}: validation expression must return a boolean")
        if not holds:
            raise TokenRefused(f"{about}: validation expression '{expression}' failed: {rule.get('message', '')}")
