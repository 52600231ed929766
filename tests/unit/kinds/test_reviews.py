from typing import Any

import pytest

from setpoint.meta.errors import BadRequest

GROUP = "authorization.k8s.io/v1"
POD = {"verb": "get", "resource": "pods", "namespace": "here"}


def errors(lifecycle: Any, kind: str, spec: dict[str, Any], **meta: Any) -> list[str]:
    review = lifecycle(GROUP, kind)
    obj = review.decoded({"spec": spec})
    obj["metadata"] = dict(meta)
    found: list[Any] = []
    review.strategy.validate(obj, found, review.ctx)
    return [error.message() for error in found]


def test_a_review_concerns_a_resource_or_a_path(lifecycle: Any) -> None:
    both = {"user": "u", "resourceAttributes": POD, "nonResourceAttributes": {"path": "/"}}
    assert errors(lifecycle, "SubjectAccessReview", both) == [
        'spec: Invalid value: {"Path":"/","Verb":""}: exactly one of nonResourceAttributes or resourceAttributes '
        "must be specified"
    ]
    assert errors(lifecycle, "SelfSubjectAccessReview", {"resourceAttributes": POD}) == []
    assert errors(lifecycle, "SubjectAccessReview", {"resourceAttributes": POD}) == [
        'spec.user: Invalid value: "": at least one of user or group must be specified'
    ]


def test_metadata_is_empty(lifecycle: Any) -> None:
    assert errors(lifecycle, "SelfSubjectAccessReview", {"resourceAttributes": POD}, name="x") == [
        'metadata: Invalid value: {"name":"x"}: must be empty'
    ]


def test_local_review_is_limited_to_its_namespace(lifecycle: Any) -> None:
    spec = {"user": "u", "resourceAttributes": POD}
    assert errors(lifecycle, "LocalSubjectAccessReview", spec, namespace="here") == []
    assert errors(lifecycle, "LocalSubjectAccessReview", spec, namespace="there") == [
        'spec.resourceAttributes.namespace: Invalid value: "here": must match metadata.namespace'
    ]


def test_selectors(lifecycle: Any) -> None:
    requirements = [{"operator": "In"}, {"key": "k", "operator": "?"}]
    spec = {"resourceAttributes": {**POD, "fieldSelector": {"requirements": requirements}}}
    at = "spec.resourceAttributes.fieldSelector.requirements[0]"
    assert errors(lifecycle, "SelfSubjectAccessReview", spec) == [
        f"{at}.key: Required value: must be specified",
        f"{at}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
    ]


def test_empty_reviews_are_bad_requests(lifecycle: Any) -> None:
    with pytest.raises(BadRequest, match="no namespace on request"):
        errors(lifecycle, "SelfSubjectRulesReview", {})
    review = lifecycle("authentication.k8s.io/v1", "TokenReview")
    with pytest.raises(BadRequest, match="token is required"):
        review.strategy.validate(review.decoded({}), [], review.ctx)
