"""The matching of audit rules, and invalid policies."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from audit_harness import policy

from setpoint.apiserver.audit.policy import LEVELS, PolicyError, read_policy
from setpoint.apiserver.filters.authorize import Access
from setpoint.kinds.strategy import UserInfo

_TIM = UserInfo("tim@k8s.io", groups=("humans", "developers"))
_READ = Access(_TIM, "get", "", "v1", "pods", "", "default", "busybox")
_LOG = _READ._replace(subresource="log")
_SCALE = Access(_TIM, "update", "apps", "v1", "deployments", "scale", "prod", "web")
_NODE = Access(_TIM, "list", "", "v1", "nodes")
_PATH = Access(_TIM, "get", path="/logs/kubelet.log")


@pytest.mark.parametrize(
    ("rule", "access", "matches"),
    [
        ({}, _READ, True),
        ({}, _PATH, True),
        ({"users": ["tim@k8s.io"]}, _READ, True),
        ({"users": ["jane"]}, _READ, False),
        ({"userGroups": ["cats", "humans"]}, _READ, True),
        ({"userGroups": ["cats"]}, _READ, False),
        ({"users": ["tim@k8s.io"], "userGroups": ["cats"]}, _READ, False),
        ({"verbs": ["get", "list"]}, _READ, True),
        ({"verbs": ["create"]}, _READ, False),
        ({"resources": [{"resources": ["pods"]}]}, _READ, True),
        ({"resources": [{"resources": ["pods"]}]}, _LOG, False),
        ({"resources": [{"resources": ["pods/log"]}]}, _LOG, True),
        ({"resources": [{"resources": ["pods/*"]}]}, _LOG, True),
        ({"resources": [{"resources": ["pods/*"]}]}, _READ, True),
        ({"resources": [{"resources": ["*/log"]}]}, _LOG, True),
        ({"resources": [{"resources": ["*/log"]}]}, _READ, False),
        ({"resources": [{"resources": ["*"]}]}, _LOG, True),
        ({"resources": [{"resources": ["*"]}]}, _SCALE, False),
        ({"resources": [{"group": "*", "resources": ["*/scale"]}]}, _SCALE, True),
        ({"resources": [{"group": "apps"}]}, _SCALE, True),
        ({"resources": [{"group": "batch"}]}, _SCALE, False),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["busybox"]}]}, _READ, True),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["other"]}]}, _READ, False),
        ({"resources": [{"resources": ["pods"]}]}, _PATH, False),
        ({"namespaces": ["default"]}, _READ, True),
        ({"namespaces": [""]}, _READ, False),
        ({"namespaces": [""]}, _NODE, True),
        ({"namespaces": ["default"]}, _PATH, False),
        ({"nonResourceURLs": ["/logs*"]}, _PATH, True),
        ({"nonResourceURLs": ["*"]}, _PATH, True),
        ({"nonResourceURLs": ["/logs/kubelet.log"]}, _PATH, True),
        ({"nonResourceURLs": ["/metrics"]}, _PATH, False),
        ({"nonResourceURLs": ["*"]}, _READ, False),
    ],
)
def test_rules(rule: dict[str, Any], access: Access, matches: bool) -> None:
    found = read_policy(policy({"level": "Request", **rule}, {"level": "Metadata"})).config_for(access)
    assert found is not None
    assert LEVELS[found.level] == ("Request" if matches else "Metadata")


def test_the_first_matching_rule_decides() -> None:
    found = read_policy(policy({"level": "None", "verbs": ["get"]}, {"level": "Metadata", "verbs": ["get", "list"]}))
    assert found.config_for(_READ) is None
    assert found.config_for(_NODE) is not None
    assert found.config_for(_SCALE) is None


def test_policy_defaults_and_overrides_of_rules() -> None:
    rules: list[dict[str, Any]] = [
        {"level": "Metadata", "verbs": ["get"], "omitStages": ["Panic"], "omitManagedFields": False},
        {"level": "Metadata"},
    ]
    found = read_policy(policy(*rules, omitStages=["RequestReceived"], omitManagedFields=True))
    first, second = found.config_for(_READ), found.config_for(_NODE)
    assert first is not None and second is not None
    assert (first.omit, first.omit_managed_fields) == (frozenset({"RequestReceived", "Panic"}), False)
    assert (second.omit, second.omit_managed_fields) == (frozenset({"RequestReceived"}), True)


_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (policy(), "loaded illegal policy with 0 rules"),
        (policy({}), "rules[0].level: Required value"),
        (
            policy({"level": "Everything"}),
            'rules[0].level: Unsupported value: "Everything": supported values: '
            '"None", "Metadata", "Request", "RequestResponse"',
        ),
        (
            policy({"level": "None", "nonResourceURLs": ["logs", "/a*b"]}),
            "[rules[0].nonResourceURLs[0]: Invalid value: \"logs\": non-resource URL rules must begin with a '/' "
            "character, rules[0].nonResourceURLs[1]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must be "
            "the final character of the rule]",
        ),
        (
            policy({"level": "None", "nonResourceURLs": ["/logs"], "namespaces": ["default"]}),
            'rules[0].nonResourceURLs: Invalid value: ["/logs"]: rules cannot apply to both regular resources and '
            "non-resource URLs",
        ),
        (
            policy({"level": "None", "resources": [{"group": "rbac/v1"}]}),
            f'rules[0].resources.group: Invalid value: "rbac/v1": {_SUBDOMAIN}',
        ),
        (
            policy({"level": "None", "resources": [{"group": "apps", "resourceNames": ["web"]}]}),
            'rules[0].resources.resourceNames: Invalid value: ["web"]: using resourceNames requires at least one '
            "resource",
        ),
        (
            policy({"level": "None", "omitStages": ["Later"]}),
            'rules[0].omitStages[0]: Invalid value: "Later": allowed stages are '
            "RequestReceived,ResponseStarted,ResponseComplete,Panic",
        ),
        (b"kind: Policy\n", "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy"),
        (
            b"kind: Policy\napiVersion: audit.k8s.io/v1\nrules: 5",
            "failed decoding: json: cannot unmarshal number into Go struct field Policy.rules of type []v1.PolicyRule",
        ),
        (
            orjson.dumps({"kind": "Policy", "apiVersion": "audit.k8s.io/v1beta1"}),
            'failed decoding: no kind "Policy" is registered for version "audit.k8s.io/v1beta1" in scheme '
            '"pkg/audit/scheme.go:30"',
        ),
    ],
)
def test_invalid_policies(document: bytes, why: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        read_policy(document)
    assert str(refusal.value) == why


def test_unknown_fields_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    read_policy(policy({"level": "Metadata", "levels": 3}))
    assert caplog.messages == [
        "Audit policy contains errors, falling back to lenient decoding: strict decoding error: "
        'unknown field "rules[0].levels"'
    ]
