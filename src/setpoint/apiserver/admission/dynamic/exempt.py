"""What dynamic admission keeps away from: its own configuration, and questions that it may itself have to ask."""

from __future__ import annotations

from setpoint.kinds.catalog import Resource

_REVIEWS = {
    "authentication.k8s.io": ("selfsubjectreviews", "tokenreviews"),
    "authorization.k8s.io": (
        "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews",
    ),
}  # fmt: skip
GROUP = "admissionregistration.k8s.io"
_POLICIES = (
    "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies", "validatingadmissionpolicybindings",
)  # fmt: skip
_WEBHOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def is_review(resource: Resource) -> bool:
    """Nobody at all looks at these."""
    return resource.plural in _REVIEWS.get(resource.group, ())


def from_policies(resource: Resource) -> bool:
    if resource.group == GROUP:
        return resource.plural in _POLICIES
    return is_review(resource)


def from_webhooks(resource: Resource) -> bool:
    if resource.group == GROUP:
        return resource.plural in _POLICIES or resource.plural in _WEBHOOKS
    return is_review(resource)
