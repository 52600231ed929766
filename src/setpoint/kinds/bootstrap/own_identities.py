"""Permissions of identities that exist in every Setpoint cluster and not upstream.

They are not RBAC roles: a new cluster has exactly upstream's roles and bindings.
"""

from __future__ import annotations

from setpoint.kinds.bootstrap.cluster_roles import CLUSTER_ROLES
from setpoint.kinds.bootstrap.policy_rules import READ, events, rule
from setpoint.kinds.strategy import Obj

FLEET = "system:node-fleet"
"""User that watches on behalf of many simulated nodes at once."""
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""User of the API server in requests to nodes."""


def _as_node(verbs: str, groups: str, resources: str) -> Obj:
    """Return a rule that allows this on behalf of any node, if the node itself is allowed to."""
    return rule(" ".join(f"impersonate-on:arbitrary-node:{verb}" for verb in verbs.split()), groups, resources)


OWN_IDENTITIES: dict[str, tuple[Obj, ...]] = {
    FLEET: (
        rule(READ, "core", "configmaps nodes persistentvolumeclaims pods secrets services"),
        rule(READ, "certificates.k8s.io", "clustertrustbundles"),
        rule(READ, "discovery.k8s.io", "endpointslices"),
        events(),
        # TokenReviews and SubjectAccessReviews for requests to a node, such as for logs.
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        # Over the wire each write is made in the name of the node that it is about.
        rule("impersonate:arbitrary-node", "authentication.k8s.io", "nodes"),
        _as_node("create get patch", "core", "nodes"),
        _as_node("patch", "core", "nodes/status pods/status"),
        _as_node("create delete", "core", "pods"),
        _as_node("create", "core", "serviceaccounts/token"),
        _as_node("create get update", "coordination.k8s.io", "leases"),
        _as_node("create get update", "storage.k8s.io", "csinodes"),
        _as_node("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
    ),
    KUBELET_CLIENT: CLUSTER_ROLES["system:kubelet-api-admin"],
}
