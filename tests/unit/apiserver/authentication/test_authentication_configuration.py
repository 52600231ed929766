"""Errors of an AuthenticationConfiguration, in upstream's words."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.apiserver.authentication.configuration import check_authentication, read_authentication
from setpoint.apiserver.config_files import FileProblem
from setpoint.meta.body import dump_yaml
from setpoint.meta.field import aggregate_message
from setpoint.meta.objects import Obj

URL = "https://issuer-url"
HEAD = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}


def one(issuer: Obj | None = None, **more: Any) -> Obj:
    username = {"claim": "sub", "prefix": ""}
    plain = {"issuer": {"url": URL, "audiences": ["a"]} | (issuer or {}), "claimMappings": {"username": username}}
    return plain | more


def mapped(**mappings: Any) -> Obj:
    return one(claimMappings={"username": {"claim": "sub", "prefix": ""}} | mappings)


def named(**username: Any) -> Obj:
    return mapped(username=username)


def errors(*authenticators: Obj, **more: Any) -> str:
    config = read_authentication(dump_yaml({**HEAD, "jwt": list(authenticators), **more}))
    return aggregate_message(check_authentication(config, ["https://own"]))


EMAIL = (
    "claims.email_verified must be used in claimMappings.username.expression or "
    "claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in "
    "claimMappings.username.expression"
)


@pytest.mark.parametrize(
    ("authenticators", "message"),
    [
        ([one(), one()], f'jwt[1].issuer.url: Duplicate value: "{URL}"'),
        (
            [one({"discoveryURL": "https://d"}), one({"url": "https://2", "discoveryURL": "https://d"})],
            'jwt[1].issuer.discoveryURL: Duplicate value: "https://d"',
        ),
        ([one() for _ in range(65)], "jwt: Too many: 65: must have at most 64 items"),
        ([one({"url": ""})], "jwt[0].issuer.url: Required value"),
        (
            [one({"url": "https://own"})],
            'jwt[0].issuer.url: Invalid value: "https://own": URL must not overlap with '
            "disallowed issuers: [https://own]",
        ),
        ([one({"url": "http://x"})], 'jwt[0].issuer.url: Invalid value: "http://x": URL scheme must be https'),
        (
            [one({"url": "https://u:p@x"})],
            'jwt[0].issuer.url: Invalid value: "https://u:p@x": URL must not contain a username or password',
        ),
        (
            [one({"url": "https://x?a=b"})],
            'jwt[0].issuer.url: Invalid value: "https://x?a=b": URL must not contain a query',
        ),
        (
            [one({"url": "https://x#a"})],
            'jwt[0].issuer.url: Invalid value: "https://x#a": URL must not contain a fragment',
        ),
        (
            [one({"discoveryURL": f"{URL}/"})],
            f'jwt[0].issuer.discoveryURL: Invalid value: "{URL}/": discoveryURL must be different from URL',
        ),
        (
            [one({"audiences": []})],
            "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
        ),
        ([one({"audiences": [""]})], "jwt[0].issuer.audiences[0]: Required value"),
        (
            [one({"audiences": ["a", "a"], "audienceMatchPolicy": "MatchAny"})],
            'jwt[0].issuer.audiences[1]: Duplicate value: "a"',
        ),
        (
            [one({"audiences": ["a", "b"]})],
            'jwt[0].issuer.audienceMatchPolicy: Invalid value: "": audienceMatchPolicy '
            "must be MatchAny for multiple audiences",
        ),
        (
            [one({"audienceMatchPolicy": "MatchAll"})],
            'jwt[0].issuer.audienceMatchPolicy: Invalid value: "MatchAll": '
            "audienceMatchPolicy must be empty or MatchAny for single audience",
        ),
        (
            [one({"certificateAuthority": "x"})],
            'jwt[0].issuer.certificateAuthority: Invalid value: "<omitted>": data '
            "does not contain any valid RSA or ECDSA certificates",
        ),
        (
            [one({"egressSelectorType": "x"})],
            'jwt[0].issuer.egressSelectorType: Invalid value: "x": egress selector '
            "must be either controlplane or cluster",
        ),
        (
            [one({"egressSelectorType": "cluster"})],
            'jwt[0].issuer.egressSelectorType: Invalid value: "cluster": oidc: '
            'egress lookup required with egress selector type "cluster"',
        ),
        (
            [one(claimValidationRules=[{"claim": "a", "expression": "true"}])],
            'jwt[0].claimValidationRules[0]: Invalid value: "a": claim and expression can\'t both be set',
        ),
        (
            [one(claimValidationRules=[{}])],
            "jwt[0].claimValidationRules[0]: Required value: claim or expression is required",
        ),
        (
            [one(claimValidationRules=[{"claim": "a", "message": "m"}])],
            'jwt[0].claimValidationRules[0].message: Invalid value: "m": may not be specified when claim is set',
        ),
        (
            [one(claimValidationRules=[{"claim": "a"}, {"claim": "a"}])],
            'jwt[0].claimValidationRules[1].claim: Duplicate value: "a"',
        ),
        (
            [one(claimValidationRules=[{"expression": "true", "requiredValue": "v"}])],
            'jwt[0].claimValidationRules[0].requiredValue: Invalid value: "v": may not be specified when expression is '
            "set",
        ),
        (
            [one(claimValidationRules=[{"expression": "claims.a"}])],
            'jwt[0].claimValidationRules[0].expression: Invalid value: "claims.a": must evaluate to bool',
        ),
        (
            [one(claimValidationRules=[{"expression": "foo.bar"}])],
            "jwt[0].claimValidationRules[0].expression: Invalid "
            "value: \"foo.bar\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container "
            "'')\n | foo.bar\n | ^",
        ),
        ([mapped(username={})], "jwt[0].claimMappings.username: Required value: claim or expression is required"),
        (
            [named(claim="a")],
            "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is "
            "set. It can be set to an empty string to disable prefixing",
        ),
        (
            [named(claim="a", prefix="", expression="claims.a")],
            'jwt[0].claimMappings.username: Invalid value: "": claim and expression can\'t both be set',
        ),
        (
            [named(prefix="p", expression="claims.a")],
            'jwt[0].claimMappings.username.prefix: Invalid value: "p": may not be specified when expression is set',
        ),
        (
            [named(expression="claims.email")],
            'jwt[0].claimMappings.username.expression: Invalid value: "claims.email": ' + EMAIL,
        ),
        (
            [named(expression="claims.?email.orValue('x')")],
            f"jwt[0].claimMappings.username.expression: Invalid value: \"claims.?email.orValue('x')\": {EMAIL}",
        ),
        (
            [mapped(uid={"claim": "a", "expression": "claims.a"})],
            'jwt[0].claimMappings.uid: Invalid value: "": claim and expression can\'t both be set',
        ),
        (
            [mapped(extra=[{"key": "", "valueExpression": "claims.a"}])],
            "jwt[0].claimMappings.extra[0].key: Required value",
        ),
        (
            [mapped(extra=[{"key": "a", "valueExpression": "claims.a"}])],
            "jwt[0].claimMappings.extra[0].key: Invalid "
            'value: "a": must be a domain-prefixed path (such as "acme.io/foo")',
        ),
        (
            [mapped(extra=[{"key": "a.io/B", "valueExpression": "claims.a"}])],
            'jwt[0].claimMappings.extra[0].key: Invalid value: "a.io/B": must be lowercase',
        ),
        (
            [mapped(extra=[{"key": "x.k8s.io/a", "valueExpression": "claims.a"}])],
            "jwt[0].claimMappings.extra[0].key: "
            'Invalid value: "x.k8s.io/a": k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use',
        ),
        (
            [mapped(extra=[{"key": "a.io/b", "valueExpression": "claims.a"}] * 2)],
            'jwt[0].claimMappings.extra[1].key: Duplicate value: "a.io/b"',
        ),
        ([mapped(extra=[{"key": "a.io/b"}])], "jwt[0].claimMappings.extra[0].valueExpression: Required value"),
        ([one(userValidationRules=[{}])], "jwt[0].userValidationRules[0].expression: Required value"),
        (
            [one(userValidationRules=[{"expression": "user.x == ''"}])],
            "jwt[0].userValidationRules[0].expression: "
            "Invalid value: \"user.x == ''\": compilation failed: ERROR: <input>:1:5: undefined field 'x'\n"
            " | user.x == ''\n | ....^",
        ),
        (
            [one(userValidationRules=[{"expression": "user.username"}])],
            'jwt[0].userValidationRules[0].expression: Invalid value: "user.username": must evaluate to bool',
        ),
        (
            [one(userValidationRules=[{"expression": "true"}] * 2)],
            'jwt[0].userValidationRules[1].expression: Duplicate value: "true"',
        ),
    ],
)
def test_invalid_configurations(authenticators: list[Obj], message: str) -> None:
    assert errors(*authenticators) == message


@pytest.mark.parametrize(
    "authenticator",
    [
        one(),
        one({"audiences": ["a", "b"], "audienceMatchPolicy": "MatchAny"}),
        named(expression="claims.email_verified ? claims.email : claims.sub"),
        one(
            claimMappings={"username": {"expression": "claims.email"}},
            claimValidationRules=[{"expression": "claims.?email_verified.orValue(true) == true"}],
        ),
        one(
            claimMappings={
                "username": {"expression": "[claims.email][0]"},
                "extra": [{"key": "a.io/b", "valueExpression": "string(claims.email_verified)"}],
            }
        ),
        one(userValidationRules=[{"expression": "user.groups.all(g, g != 'x') && user.extra.size() == 0"}]),
    ],
)
def test_valid_configurations(authenticator: Obj) -> None:
    assert check_authentication({"jwt": [authenticator]}) == []


def test_anonymous_conditions_need_enabled() -> None:
    text = errors(anonymous={"enabled": False, "conditions": [{"path": "/livez"}]})
    assert text.endswith("enabled should be set to true when conditions are defined")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "empty config data"),
        (b"kind: X\n", "Object 'apiVersion' is missing in 'kind: X\n'"),
        (b"apiVersion: v1\nkind: Pod\n", 'no kind "Pod" is registered for version "v1"'),
        (
            dump_yaml({**HEAD, "jwt": [{"issuer": {"uri": "x"}}], "more": 1}),
            'strict decoding error: unknown field "jwt[0].issuer.uri", unknown field "more"',
        ),
        (
            dump_yaml(HEAD) + b"jwt: []\njwt: []\n",
            'strict decoding error: yaml: unmarshal errors:\n  line 4: key "jwt" already set in map',
        ),
        (
            dump_yaml({**HEAD, "jwt": 7}),
            "json: cannot unmarshal number into Go struct field "
            "AuthenticationConfiguration.jwt of type []v1.JWTAuthenticator",
        ),
    ],
)
def test_files_are_read_strictly(text: bytes, message: str) -> None:
    with pytest.raises(FileProblem) as found:
        read_authentication(text)
    assert str(found.value) == message
