"""The catalog of built-in resources.

Resources are in the order of discovery: groups by priority, resources by name.
"""

from __future__ import annotations

from setpoint.kinds.api_resource import SCALE, STATUS, Resource, Subresource

__all__ = ["RESOURCES", "SCALE", "STATUS", "Resource", "Subresource"]

RESOURCES: tuple[Resource, ...] = (
    # v1
    Resource("", "v1", "Binding", "bindings", verbs=("create",)),
    Resource("", "v1", "ComponentStatus", "componentstatuses", namespaced=False, short=("cs",), verbs=("get", "list")),
    Resource("", "v1", "ConfigMap", "configmaps", short=("cm",)),
    Resource("", "v1", "Endpoints", "endpoints", short=("ep",)),
    Resource("", "v1", "Event", "events", short=("ev",)),
    Resource("", "v1", "LimitRange", "limitranges", short=("limits",)),
    Resource(
        "",
        "v1",
        "Namespace",
        "namespaces",
        namespaced=False,
        short=("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources=(
            Subresource("finalize", "Namespace", ("update",)),
            STATUS,
        ),
    ),
    Resource(
        "",
        "v1",
        "Node",
        "nodes",
        namespaced=False,
        short=("no",),
        subresources=(
            Subresource("proxy", "NodeProxyOptions", ("create", "delete", "get", "patch", "update")),
            STATUS,
        ),
    ),
    Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", short=("pvc",), subresources=(STATUS,)),
    Resource(
        "", "v1", "PersistentVolume", "persistentvolumes", namespaced=False, short=("pv",), subresources=(STATUS,)
    ),
    Resource(
        "",
        "v1",
        "Pod",
        "pods",
        short=("po",),
        categories=("all",),
        subresources=(
            Subresource("attach", "PodAttachOptions", ("create", "get")),
            Subresource("binding", "Binding", ("create",)),
            Subresource("ephemeralcontainers", "Pod", ("get", "patch", "update")),
            Subresource("eviction", "Eviction", ("create",), group="policy", version="v1"),
            Subresource("exec", "PodExecOptions", ("create", "get")),
            Subresource("log", "Pod", ("get",)),
            Subresource("portforward", "PodPortForwardOptions", ("create", "get")),
            Subresource("proxy", "PodProxyOptions", ("create", "delete", "get", "patch", "update")),
            Subresource("resize", "Pod", ("get", "patch", "update")),
            STATUS,
        ),
    ),
    Resource("", "v1", "PodTemplate", "podtemplates"),
    Resource(
        "",
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        short=("rc",),
        categories=("all",),
        subresources=(
            SCALE,
            STATUS,
        ),
    ),
    Resource("", "v1", "ResourceQuota", "resourcequotas", short=("quota",), subresources=(STATUS,)),
    Resource("", "v1", "Secret", "secrets"),
    Resource(
        "",
        "v1",
        "ServiceAccount",
        "serviceaccounts",
        short=("sa",),
        subresources=(Subresource("token", "TokenRequest", ("create",), group="authentication.k8s.io", version="v1"),),
    ),
    Resource(
        "",
        "v1",
        "Service",
        "services",
        short=("svc",),
        categories=("all",),
        subresources=(
            Subresource("proxy", "ServiceProxyOptions", ("create", "delete", "get", "patch", "update")),
            STATUS,
        ),
    ),
    # apiregistration.k8s.io/v1
    Resource(
        "apiregistration.k8s.io",
        "v1",
        "APIService",
        "apiservices",
        namespaced=False,
        categories=("api-extensions",),
        subresources=(STATUS,),
    ),
    # apps/v1
    Resource("apps", "v1", "ControllerRevision", "controllerrevisions"),
    Resource("apps", "v1", "DaemonSet", "daemonsets", short=("ds",), categories=("all",), subresources=(STATUS,)),
    Resource(
        "apps",
        "v1",
        "Deployment",
        "deployments",
        short=("deploy",),
        categories=("all",),
        subresources=(
            SCALE,
            STATUS,
        ),
    ),
    Resource(
        "apps",
        "v1",
        "ReplicaSet",
        "replicasets",
        short=("rs",),
        categories=("all",),
        subresources=(
            SCALE,
            STATUS,
        ),
    ),
    Resource(
        "apps",
        "v1",
        "StatefulSet",
        "statefulsets",
        short=("sts",),
        categories=("all",),
        subresources=(
            SCALE,
            STATUS,
        ),
    ),
    # events.k8s.io/v1
    Resource("events.k8s.io", "v1", "Event", "events", short=("ev",)),
    # authentication.k8s.io/v1
    Resource(
        "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False, verbs=("create",)
    ),
    Resource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False, verbs=("create",)),
    # authorization.k8s.io/v1
    Resource("authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", verbs=("create",)),
    Resource(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        namespaced=False,
        verbs=("create",),
    ),
    Resource(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        namespaced=False,
        verbs=("create",),
    ),
    Resource(
        "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False, verbs=("create",)
    ),
    # autoscaling/v2
    Resource(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        short=("hpa",),
        categories=("all",),
        subresources=(STATUS,),
    ),
    # autoscaling/v1
    Resource(
        "autoscaling",
        "v1",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        short=("hpa",),
        categories=("all",),
        subresources=(STATUS,),
    ),
    # batch/v1
    Resource("batch", "v1", "CronJob", "cronjobs", short=("cj",), categories=("all",), subresources=(STATUS,)),
    Resource("batch", "v1", "Job", "jobs", categories=("all",), subresources=(STATUS,)),
    # certificates.k8s.io/v1
    Resource(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        namespaced=False,
        short=("csr",),
        subresources=(
            Subresource("approval", "CertificateSigningRequest", ("get", "patch", "update")),
            STATUS,
        ),
    ),
    Resource("certificates.k8s.io", "v1", "ClusterTrustBundle", "clustertrustbundles", namespaced=False),
    Resource("certificates.k8s.io", "v1", "PodCertificateRequest", "podcertificaterequests", subresources=(STATUS,)),
    # networking.k8s.io/v1
    Resource("networking.k8s.io", "v1", "IngressClass", "ingressclasses", namespaced=False),
    Resource("networking.k8s.io", "v1", "Ingress", "ingresses", short=("ing",), subresources=(STATUS,)),
    Resource("networking.k8s.io", "v1", "IPAddress", "ipaddresses", namespaced=False, short=("ip",)),
    Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", short=("netpol",)),
    Resource("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", namespaced=False, subresources=(STATUS,)),
    # policy/v1
    Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", short=("pdb",), subresources=(STATUS,)),
    # rbac.authorization.k8s.io/v1
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False),
    Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    Resource("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    # storage.k8s.io/v1
    Resource("storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False),
    Resource("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False, subresources=(STATUS,)),
    Resource("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities"),
    Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False, short=("sc",)),
    Resource("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", namespaced=False, subresources=(STATUS,)),
    Resource(
        "storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", namespaced=False, short=("vac",)
    ),
    # admissionregistration.k8s.io/v1
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        namespaced=False,
        categories=("api-extensions",),
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        namespaced=False,
        categories=("api-extensions",),
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
        categories=("api-extensions",),
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        namespaced=False,
        categories=("api-extensions",),
        subresources=(STATUS,),
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
        categories=("api-extensions",),
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
        categories=("api-extensions",),
    ),
    # apiextensions.k8s.io/v1
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        short=("crd", "crds"),
        categories=("api-extensions",),
        subresources=(STATUS,),
    ),
    # scheduling.k8s.io/v1
    Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False, short=("pc",)),
    # coordination.k8s.io/v1
    Resource("coordination.k8s.io", "v1", "Lease", "leases"),
    # node.k8s.io/v1
    Resource("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False),
    # discovery.k8s.io/v1
    Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
    # resource.k8s.io/v1
    Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False),
    Resource("resource.k8s.io", "v1", "DeviceTaintRule", "devicetaintrules", namespaced=False, subresources=(STATUS,)),
    Resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", subresources=(STATUS,)),
    Resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
    Resource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False),
    # flowcontrol.apiserver.k8s.io/v1
    Resource(
        "flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", namespaced=False, subresources=(STATUS,)
    ),
    Resource(
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        namespaced=False,
        subresources=(STATUS,),
    ),
    # storagemigration.k8s.io/v1
    Resource(
        "storagemigration.k8s.io",
        "v1",
        "StorageVersionMigration",
        "storageversionmigrations",
        namespaced=False,
        subresources=(STATUS,),
    ),
)
