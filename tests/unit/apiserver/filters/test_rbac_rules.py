from __future__ import annotations

import pytest

from setpoint.apiserver.filters.authorize import Access
from setpoint.apiserver.filters.rbac import compacted, covers_request, described, permits, uncovered
from setpoint.kinds.strategy import UserInfo

USER = UserInfo("jane")
PODS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}


def allows(rule: dict[str, list[str]], **wanted: str) -> bool:
    access = Access(USER, wanted.pop("verb", "get"), **wanted)  # type: ignore[arg-type]
    return covers_request(rule, access) and permits(rule, access)


@pytest.mark.parametrize(
    ("resources", "resource", "subresource", "expected"),
    [
        (["pods"], "pods", "", True),
        (["pods"], "pods", "log", False),
        (["pods/log"], "pods", "log", True),
        (["pods/log"], "pods", "", False),
        (["*/log"], "pods", "log", True),
        (["*/log"], "pods", "", False),
        (["pods/*"], "pods", "log", False),
        (["*"], "pods", "log", True),
        (["*"], "", "", True),
    ],
)
def test_resources(resources: list[str], resource: str, subresource: str, expected: bool) -> None:
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": resources}
    assert allows(rule, resource=resource, subresource=subresource) is expected


def test_resource_names_restrict_a_rule() -> None:
    rule = PODS | {"resourceNames": ["a"]}
    assert allows(rule, resource="pods", name="a")
    assert not allows(rule, resource="pods", name="b")
    assert not allows(rule, resource="pods")


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [("/a", "/a", True), ("/a", "/a/b", False), ("/a/*", "/a/b", True), ("/a/*", "/a", False), ("*", "/x", True)],
)
def test_paths(pattern: str, path: str, expected: bool) -> None:
    assert allows({"verbs": ["get"], "nonResourceURLs": [pattern]}, path=path) is expected


def test_resource_rules_do_not_cover_paths() -> None:
    assert not allows({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, path="/metrics")
    assert not allows({"verbs": ["*"], "nonResourceURLs": ["*"]}, resource="pods")


def test_uncovered_rights_are_listed_separately() -> None:
    wanted = {"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods"]}
    assert uncovered([PODS], [wanted]) == [
        {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["pods"]},
        {"verbs": ["list"], "apiGroups": ["apps"], "resources": ["pods"]},
    ]


@pytest.mark.parametrize(
    ("owner", "part", "covered"),
    [
        (PODS, PODS | {"resourceNames": ["a"]}, True),
        (PODS | {"resourceNames": ["a"]}, PODS, False),
        (PODS | {"resourceNames": ["a"]}, PODS | {"resourceNames": ["a"]}, True),
        (PODS | {"resourceNames": ["a"]}, PODS | {"resourceNames": ["b"]}, False),
        (PODS | {"resources": ["*/log"]}, PODS | {"resources": ["pods/log"]}, True),
        (PODS | {"resources": ["*"]}, PODS | {"resources": ["pods/log"]}, True),
        (PODS | {"verbs": ["*"]}, PODS, True),
        (PODS, PODS | {"verbs": ["*"]}, False),
        ({"verbs": ["get"], "nonResourceURLs": ["/a/*"]}, {"verbs": ["get"], "nonResourceURLs": ["/a/b"]}, True),
        ({"verbs": ["get"], "nonResourceURLs": ["/a/*"]}, {"verbs": ["get"], "nonResourceURLs": ["*"]}, False),
    ],
)
def test_covering(owner: dict[str, list[str]], part: dict[str, list[str]], covered: bool) -> None:
    assert (uncovered([owner], [part]) == []) is covered


def test_rules_for_one_resource_are_compacted() -> None:
    parts = [
        PODS,
        PODS | {"verbs": ["list"]},
        PODS | {"resourceNames": ["a"]},
        {"verbs": ["get"], "nonResourceURLs": ["/"]},
    ]
    assert [described(rule) for rule in compacted(parts)] == [
        '{NonResourceURLs:["/"], Verbs:["get"]}',
        '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}',
        '{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}',
    ]
