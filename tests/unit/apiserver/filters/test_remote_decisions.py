"""Authenticators and authorizers that must be awaited: their answers count wherever they are needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

import pytest
from server_harness import ServerHarness

from setpoint.apiserver.filters.authenticate import TokenRefused, Verified
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain, Decision, Problem, Ruling
from setpoint.kinds.strategy import UserInfo

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
HERE = "/api/v1/namespaces/default"


class RemoteAuthorizer:
    """Decides asynchronously by a table of verb and resource."""

    name = "far"

    def __init__(self) -> None:
        self.table: dict[tuple[str, str], Ruling] = {}
        self.asked: list[tuple[str, str, str]] = []

    def authorize(self, access: Access) -> Awaitable[Ruling]:
        return self._decide(access)

    async def _decide(self, access: Access) -> Ruling:
        self.asked.append((access.user.name, access.verb, access.resource))
        return self.table.get((access.verb, access.resource), (Decision.NO_OPINION, "never heard of it"))

    def rules_for(self, user: UserInfo, namespace: str) -> Any:
        raise NotImplementedError


class RemoteTokens:
    def verify(self, token: str, audiences: Sequence[str]) -> Awaitable[Verified | None] | None:
        return self._verify(token) if token.startswith("far-") else None

    async def _verify(self, token: str) -> Verified | None:
        if token == "far-bad":
            raise TokenRefused("it went bad on the way")
        return Verified(UserInfo(token[4:], groups=("system:authenticated",)), ()) if token != "far-who" else None


@pytest.fixture
async def remote(harness: ServerHarness) -> AsyncIterator[RemoteAuthorizer]:
    authorizer, chain = RemoteAuthorizer(), harness.api.parts.authorizer
    chain._authorizers = (authorizer, *chain._authorizers)
    harness.api.parts.authenticator.add(RemoteTokens())
    yield authorizer


async def test_a_token_that_a_remote_server_knows(harness: ServerHarness, remote: RemoteAuthorizer) -> None:
    remote.table[("get", "pods")] = (Decision.ALLOW, "")
    assert (await harness.get(f"{HERE}/pods/x", token="far-jane")).status == 404
    assert remote.asked == [("jane", "get", "pods")]
    for token in ("far-bad", "far-who", "near"):
        assert (await harness.get(f"{HERE}/pods/x", token=token)).status == 401
    review = {"spec": {"token": "far-bad"}}
    status = (await harness.post("/apis/authentication.k8s.io/v1/tokenreviews", review)).json["status"]
    assert status["error"] == "[invalid bearer token, it went bad on the way]"


async def test_later_authenticators_are_asked_too(harness: ServerHarness, remote: RemoteAuthorizer) -> None:
    reply = await harness.get(f"{HERE}/pods", token="far-jane")
    assert reply.status == 403
    assert reply.message.endswith('in the namespace "default": far: never heard of it')
    remote.table[("list", "pods")] = (Decision.DENY, "not you")
    assert (await harness.get(f"{HERE}/pods", token="far-jane")).message.endswith('"default": not you')


async def test_a_failed_decision_is_a_server_error(harness: ServerHarness, remote: RemoteAuthorizer) -> None:
    remote.table[("list", "pods")] = (Decision.NO_OPINION, Problem("nobody there"))
    reply = await harness.get(f"{HERE}/pods?labelSelector=<b>", token="far-jane")
    assert (reply.status, reply.header("content-type")) == (500, "text/plain; charset=utf-8")
    assert reply.body == (
        b'Internal Server Error: "/api/v1/namespaces/default/pods?labelSelector=&lt;b&gt;": nobody there\n'
    )
    attributes = {"verb": "list", "resource": "pods", "namespace": "default"}
    review = {"spec": {"user": "jane", "resourceAttributes": attributes}}
    status = (await harness.post(REVIEWS, review)).json["status"]
    assert status == {"allowed": False, "evaluationError": "nobody there"}


async def test_another_authorizer_may_allow_after_a_failure() -> None:
    class Local(RemoteAuthorizer):
        def authorize(self, access: Access) -> Any:
            return Decision.ALLOW, "near"

    remote = RemoteAuthorizer()
    remote.table[("get", "")] = (Decision.NO_OPINION, Problem("nobody there"))
    chain = AuthorizerChain([remote, Local()])
    assert await chain.decide(Access(UserInfo("jane"), "get")) == (Decision.ALLOW, "near")


async def test_impersonation_awaits_decisions(harness: ServerHarness, remote: RemoteAuthorizer) -> None:
    headers = {"impersonate-user": "bob"}
    assert (await harness.get(f"{HERE}/pods", token="far-jane", headers=headers)).status == 403
    remote.table |= {("impersonate", "users"): (Decision.ALLOW, ""), ("list", "pods"): (Decision.ALLOW, "")}
    assert (await harness.get(f"{HERE}/pods", token="far-jane", headers=headers)).status == 200
    assert remote.asked[-1] == ("bob", "list", "pods")


async def test_expressions_await_decisions(harness: ServerHarness, remote: RemoteAuthorizer) -> None:
    """Each check is made once per write, though the expression is evaluated again after each decision."""
    group = "/apis/admissionregistration.k8s.io/v1"
    may = [f"authorizer.group('').resource('{each}').check('get').allowed()" for each in ("secrets", "pods")]
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            ]
        },
        "variables": [{"name": "may", "expression": may[0]}],
        "validations": [{"expression": f"variables.may || {may[1]}", "message": "not you"}],
    }
    await harness.make(f"{group}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    binding = {"policyName": "p", "validationActions": ["Deny"]}
    await harness.make(f"{group}/validatingadmissionpolicybindings", {"metadata": {"name": "b"}, "spec": binding})
    remote.table[("create", "configmaps")] = (Decision.ALLOW, "")
    refused = await harness.post(f"{HERE}/configmaps", {"metadata": {"name": "c"}}, token="far-jane")
    assert (refused.status, refused.message.endswith("denied request: not you")) == (422, True)
    assert remote.asked[-2:] == [("jane", "get", "secrets"), ("jane", "get", "pods")]
    remote.table[("get", "pods")] = (Decision.ALLOW, "")
    assert (await harness.post(f"{HERE}/configmaps", {"metadata": {"name": "c"}}, token="far-jane")).status == 201
    remote.table[("get", "secrets")] = (Decision.NO_OPINION, Problem("nobody there"))
    assert (await harness.post(f"{HERE}/configmaps", {"metadata": {"name": "d"}}, token="far-jane")).status == 201
