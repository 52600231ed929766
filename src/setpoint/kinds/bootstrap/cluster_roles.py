"""Bootstrap roles of users and components, and of the identities that exist only in Setpoint clusters."""

from __future__ import annotations

from setpoint.kinds.bootstrap.policy_rules import (
    FOLLOW,
    MODIFY,
    READ,
    READ_UPDATE,
    READ_WRITE,
    WRITE,
    events,
    rule,
    urls,
)
from setpoint.meta.objects import Obj

HISTORY = "setpoint:history"
"""ClusterRole of users who may ask for the past. They see what their other roles let them read now."""
WHY = "setpoint:why"
"""ClusterRole of users who may ask why an object is as it is, for objects that their other roles let them get."""
LOOPS = "setpoint:loops"
"""ClusterRole of users who may watch the control loops. They see the keys and errors of all namespaces."""

CLUSTER_ROLES: dict[str, tuple[Obj, ...]] = {
    "cluster-admin": (
        rule("*", "*", "*"),
        urls("*", "*"),
    ),
    "system:aggregate-to-admin": (
        rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
        rule(READ_WRITE, "rbac.authorization.k8s.io", "rolebindings roles"),
    ),
    "system:aggregate-to-edit": (
        rule(READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
        rule("impersonate", "core", "serviceaccounts"),
        rule(WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
        rule("create", "core", "pods/eviction"),
        rule(
            WRITE,
            "core",
            "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
            "serviceaccounts services services/proxy",
        ),
        rule("create", "core", "serviceaccounts/token"),
        rule(WRITE, "core events.k8s.io", "events"),
        rule(
            WRITE,
            "apps",
            "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale "
            "statefulsets statefulsets/scale",
        ),
        rule(WRITE, "autoscaling", "horizontalpodautoscalers"),
        rule(WRITE, "batch", "cronjobs jobs"),
        rule(
            WRITE,
            "extensions",
            "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets "
            "replicasets/scale replicationcontrollers/scale",
        ),
        rule(WRITE, "policy", "poddisruptionbudgets"),
        rule(WRITE, "networking.k8s.io", "ingresses networkpolicies"),
        rule(READ_WRITE, "coordination.k8s.io", "leases"),
        rule(WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
    ),
    "system:aggregate-to-view": (
        rule(
            READ,
            "core",
            "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
            "replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status",
        ),
        rule(
            READ,
            "core",
            "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
            "resourcequotas resourcequotas/status",
        ),
        rule(READ, "core", "namespaces"),
        rule(READ, "core events.k8s.io", "events"),
        rule(READ, "discovery.k8s.io", "endpointslices"),
        rule(
            READ,
            "apps",
            "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status "
            "replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
        ),
        rule(READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
        rule(READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
        rule(
            READ,
            "extensions",
            "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses "
            "ingresses/status networkpolicies replicasets replicasets/scale replicasets/status "
            "replicationcontrollers/scale",
        ),
        rule(READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
        rule(READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
        rule(READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
    ),
    "system:auth-delegator": (
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
    ),
    "system:basic-user": (
        rule("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
        rule("create", "authentication.k8s.io", "selfsubjectreviews"),
    ),
    "system:certificates.k8s.io:certificatesigningrequests:nodeclient": (
        rule("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient"),
    ),
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": (
        rule("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeclient"),
    ),
    "system:certificates.k8s.io:kube-apiserver-client-approver": (
        rule("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client"),
    ),
    "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver": (
        rule("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client-kubelet"),
    ),
    "system:certificates.k8s.io:kubelet-serving-approver": (
        rule("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving"),
    ),
    "system:certificates.k8s.io:legacy-unknown-approver": (
        rule("approve", "certificates.k8s.io", "signers", "kubernetes.io/legacy-unknown"),
    ),
    "system:cluster-trust-bundle-discovery": (rule(READ, "certificates.k8s.io", "clustertrustbundles"),),
    "system:discovery": (
        urls("get", "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/"),
    ),
    "system:heapster": (
        rule(READ, "core", "events namespaces nodes pods"),
        rule(READ, "extensions", "deployments"),
    ),
    "system:kube-aggregator": (rule(READ, "core", "endpoints services"),),
    "system:kube-controller-manager": (
        events(),
        rule("create", "coordination.k8s.io", "leases"),
        rule("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
        rule("create", "core", "secrets serviceaccounts"),
        rule("delete", "core", "secrets"),
        rule("get", "core", "configmaps namespaces secrets serviceaccounts"),
        rule("update", "core", "secrets serviceaccounts"),
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        rule(FOLLOW, "*", "*"),
        rule("create", "core", "serviceaccounts/token"),
    ),
    "system:kube-dns": (rule(FOLLOW, "core", "endpoints services"),),
    "system:kube-scheduler": (
        events(),
        rule("create", "coordination.k8s.io", "leases"),
        rule("get list update watch", "coordination.k8s.io", "leases", "kube-scheduler"),
        rule(READ_WRITE, "coordination.k8s.io", "leasecandidates"),
        rule(READ, "core", "nodes"),
        rule("delete get list watch", "core", "pods"),
        rule("create", "core", "bindings pods/binding"),
        rule(MODIFY, "core", "pods/status"),
        rule(READ, "core", "replicationcontrollers services"),
        rule(READ, "apps extensions", "replicasets"),
        rule(READ, "apps", "statefulsets"),
        rule(READ, "policy", "poddisruptionbudgets"),
        rule(READ, "core", "persistentvolumeclaims persistentvolumes"),
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        rule(READ, "storage.k8s.io", "csinodes"),
        rule(READ, "storage.k8s.io", "volumeattachments"),
        rule(READ, "core", "namespaces"),
        rule(READ, "storage.k8s.io", "csidrivers"),
        rule(READ, "storage.k8s.io", "csistoragecapacities"),
        rule(READ, "resource.k8s.io", "deviceclasses"),
        rule(READ_UPDATE, "resource.k8s.io", "resourceclaims"),
        rule(READ_UPDATE, "resource.k8s.io", "resourceclaims/status"),
        rule("update", "core", "pods/finalizers"),
        rule(READ, "resource.k8s.io", "resourceslices"),
        rule("create delete", "resource.k8s.io", "resourceclaims"),
        rule(READ, "resource.k8s.io", "devicetaintrules"),
        rule(MODIFY, "resource.k8s.io", "resourceclaims/binding"),
    ),
    "system:kubelet-api-admin": (
        rule(READ, "core", "nodes"),
        rule("proxy", "core", "nodes"),
        rule("*", "core", "nodes/log nodes/metrics nodes/proxy nodes/stats"),
        rule("*", "core", "nodes/configz nodes/healthz nodes/pods"),
    ),
    "system:monitoring": (
        urls("get", "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz"),
        rule("get", "core", "nodes/metrics"),
    ),
    "system:node": (
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews"),
        rule(READ, "core", "services"),
        rule("create get list watch", "core", "nodes"),
        rule(MODIFY, "core", "nodes/status"),
        rule(MODIFY, "core", "nodes"),
        events(),
        rule(READ, "core", "pods"),
        rule("create delete", "core", "pods"),
        rule(MODIFY, "core", "pods/status"),
        rule("create", "core", "pods/eviction"),
        rule(READ, "core", "configmaps secrets"),
        rule("get", "core", "persistentvolumeclaims persistentvolumes"),
        rule("get", "core", "endpoints"),
        rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
        rule("create delete get patch update", "coordination.k8s.io", "leases"),
        rule("get", "storage.k8s.io", "volumeattachments"),
        rule("create", "core", "serviceaccounts/token"),
        rule("get patch update", "core", "persistentvolumeclaims/status"),
        rule(READ, "storage.k8s.io", "csidrivers"),
        rule("create delete get patch update", "storage.k8s.io", "csinodes"),
        rule(READ, "node.k8s.io", "runtimeclasses"),
        rule("get", "resource.k8s.io", "resourceclaims"),
        rule("deletecollection", "resource.k8s.io", "resourceslices"),
        rule(READ, "certificates.k8s.io", "clustertrustbundles"),
        rule("get", "core", "serviceaccounts"),
        rule("create get list watch", "certificates.k8s.io", "podcertificaterequests"),
    ),
    "system:node-bootstrapper": (rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),),
    "system:node-problem-detector": (
        rule("get", "core", "nodes"),
        rule("patch", "core", "nodes/status"),
        events(),
    ),
    "system:node-proxier": (
        rule(FOLLOW, "core", "endpoints services"),
        rule(READ, "core", "nodes"),
        events(),
        rule(FOLLOW, "networking.k8s.io", "servicecidrs"),
        rule(FOLLOW, "discovery.k8s.io", "endpointslices"),
    ),
    "system:persistent-volume-provisioner": (
        rule("create delete get list watch", "core", "persistentvolumes"),
        rule("get list update watch", "core", "persistentvolumeclaims"),
        rule(READ, "storage.k8s.io", "storageclasses"),
        rule("watch", "core", "events"),
        events(),
    ),
    "system:public-info-viewer": (urls("get", "/healthz /livez /readyz /version /version/"),),
    "system:service-account-issuer-discovery": (
        urls(
            "get",
            "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
        ),
    ),
    "system:volume-scheduler": (
        rule(READ_UPDATE, "core", "persistentvolumes"),
        rule(READ, "storage.k8s.io", "storageclasses"),
        rule(READ_UPDATE, "core", "persistentvolumeclaims"),
    ),
    WHY: (urls("get", "/setpoint/v1/why"),),
    LOOPS: (urls("get", "/setpoint/v1/loops /setpoint/v1/faults"),),
    # All verbs, because nothing below /at/ can be changed: the answer to a write is 405 and not 403.
    HISTORY: (
        urls("*", "/at/*"),
        urls("get", "/setpoint/v1/history /setpoint/v1/writes /setpoint/v1/timeline"),
        urls("post", "/setpoint/v1/undo"),
    ),
}


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
        # With remote nodes, each write is made as the user of the node that it concerns.
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
    # Its role does not allow to read the addresses of the API servers.
    "system:kube-scheduler": (rule(READ, "discovery.k8s.io", "endpointslices"),),
}
