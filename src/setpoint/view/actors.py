"""The names by which people are shown the authors of writes."""

from __future__ import annotations

from setpoint.meta.cause import WriteCause

_SERVICE_ACCOUNT, _NODE = "system:serviceaccount:", "system:node:"
_OWN = ("system:serviceaccount:kube-system:", "system:kube-", "system:stages")
"""Beginnings of the users of the system's own controllers."""
INTERACTIVE = frozenset(
    {"kubectl", "setpoint", "setpoint-page", "k9s", "curl", "Mozilla", "helm", "Helm", "Lens", "oc", "kustomize"}
)
"""Programs that act for a person: what such a program watches is not the reason of what it writes."""


def actor_name(user: str, agent: str = "") -> str:
    """Return the display name of a user: a controller or node by its own name, a person with the program."""
    user, _, impersonator = user.partition("<")
    if impersonator:
        return f"{actor_name(user, agent)}, impersonated by {actor_name(impersonator)}"
    if user.startswith(_SERVICE_ACCOUNT):
        namespace, _, name = user.removeprefix(_SERVICE_ACCOUNT).partition(":")
        return name if namespace == "kube-system" else f"service account {namespace}/{name}"
    if user.startswith(_NODE):
        return f"kubelet {user.removeprefix(_NODE)}"
    if user == "system:apiserver" and agent in ("", "kube-apiserver"):
        return "kube-apiserver"
    if user.startswith("system:kube-"):
        return user.removeprefix("system:")
    return f"{user} ({agent})" if agent and user and agent != user else user or agent or "an unknown client"


def actor_of(cause: WriteCause | None) -> str:
    """Return the display name of the author of a write: a controller by the name that it claims, with the user unless
    that is one of the system's, a node, or a person with the program."""
    if cause is None:
        return "an unknown client"
    controller = cause.claim.reconcile.rpartition("/")[0]
    if not controller or cause.user.startswith(_NODE):
        return actor_name(cause.user, cause.agent)
    if cause.user.startswith(_OWN):
        return controller
    return f"{controller} ({actor_name(cause.user)})"


def is_interactive(cause: WriteCause) -> bool:
    """Return whether a person's program made the write; `kubectl.1.27` is one too."""
    return cause.agent.partition(".")[0] in INTERACTIVE and not cause.user.startswith("system:kube-")


def is_component(cause: WriteCause) -> bool:
    """Return whether the author is a part of the system, or a service account, rather than a person."""
    return cause.user.startswith("system:")
