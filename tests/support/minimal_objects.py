"""The least that each kind accepts, with a change for a merge patch."""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.meta.objects import Obj

_POD_SPEC: Obj = {"containers": [{"name": "c", "image": "i"}]}
_TEMPLATE: Obj = {"metadata": {"labels": {"a": "b"}}, "spec": _POD_SPEC}
_SELECTOR: Obj = {"matchLabels": {"a": "b"}}
_WORKLOAD: Obj = {"selector": _SELECTOR, "template": _TEMPLATE}
_JOB: Obj = {"template": {"spec": {**_POD_SPEC, "restartPolicy": "Never"}}}
_DEVICES: Obj = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}}
_VALIDATIONS: Obj = {
    "validations": [{"expression": "true"}],
    "matchConstraints": {
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    },
}
_WEBHOOK: Obj = {
    "name": "a.b.c",
    "clientConfig": {"url": "https://x.example/"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
_KEY = ec.generate_private_key(ec.SECP256R1())
_SOMEONE = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "someone")])
_REQUEST = x509.CertificateSigningRequestBuilder().subject_name(_SOMEONE).sign(_KEY, hashes.SHA256())
_STUB = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(_KEY, hashes.SHA256())
_ANCHOR = (
    x509.CertificateBuilder()
    .subject_name(_SOMEONE)
    .issuer_name(_SOMEONE)
    .public_key(_KEY.public_key())
    .serial_number(1)
    .not_valid_before(datetime(2026, 1, 1))
    .not_valid_after(datetime(2036, 1, 1))
    .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    .sign(_KEY, hashes.SHA256())
)

MINIMAL: dict[tuple[str, str], Obj] = {
    ("", "configmaps"): {},
    ("", "endpoints"): {},
    ("", "events"): {"involvedObject": {"namespace": "default"}},
    ("", "limitranges"): {},
    ("", "namespaces"): {},
    ("", "nodes"): {},
    ("", "persistentvolumeclaims"): {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    ("", "persistentvolumes"): {
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    },
    ("", "pods"): {"spec": _POD_SPEC},
    ("", "podtemplates"): {"template": _TEMPLATE},
    ("", "replicationcontrollers"): {"spec": {"selector": {"a": "b"}, "template": _TEMPLATE}},
    ("", "resourcequotas"): {},
    ("", "secrets"): {},
    ("", "serviceaccounts"): {},
    ("", "services"): {"spec": {"ports": [{"port": 80}]}},
    ("apiregistration.k8s.io", "apiservices"): {
        "metadata": {"name": "v1.x.example"},
        "spec": {"group": "x.example", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1},
    },
    ("apps", "controllerrevisions"): {"revision": 1, "data": {}},
    ("apps", "daemonsets"): {"spec": _WORKLOAD},
    ("apps", "deployments"): {"spec": _WORKLOAD},
    ("apps", "replicasets"): {"spec": _WORKLOAD},
    ("apps", "statefulsets"): {"spec": {**_WORKLOAD, "serviceName": "s"}},
    ("events.k8s.io", "events"): {
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "a.b/c",
        "reportingInstance": "i",
        "action": "Act",
        "reason": "Why",
        "type": "Normal",
        "regarding": {"namespace": "default"},
    },
    ("autoscaling", "horizontalpodautoscalers"): {
        "spec": {"maxReplicas": 1, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}
    },
    ("batch", "cronjobs"): {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": _JOB}}},
    ("batch", "jobs"): {"spec": _JOB},
    ("certificates.k8s.io", "certificatesigningrequests"): {
        "spec": {
            "request": b64encode(_REQUEST.public_bytes(Encoding.PEM)).decode(),
            "signerName": "x.example/signer",
            "usages": ["client auth"],
        }
    },
    ("certificates.k8s.io", "clustertrustbundles"): {
        "spec": {"trustBundle": _ANCHOR.public_bytes(Encoding.PEM).decode()}
    },
    ("certificates.k8s.io", "podcertificaterequests"): {
        "spec": {
            "signerName": "x.example/signer",
            "podName": "p",
            "podUID": "1",
            "serviceAccountName": "s",
            "serviceAccountUID": "2",
            "nodeName": "n",
            "nodeUID": "3",
            "maxExpirationSeconds": 86400,
            "stubPKCS10Request": b64encode(_STUB.public_bytes(Encoding.DER)).decode(),
        }
    },
    ("networking.k8s.io", "ingressclasses"): {"spec": {"controller": "x.example/c"}},
    ("networking.k8s.io", "ingresses"): {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 1}}}}},
    ("networking.k8s.io", "ipaddresses"): {
        "metadata": {"name": "10.96.200.200"},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "s"}},
    },
    ("networking.k8s.io", "networkpolicies"): {"spec": {"podSelector": {}}},
    ("networking.k8s.io", "servicecidrs"): {"spec": {"cidrs": ["10.200.0.0/24"]}},
    ("policy", "poddisruptionbudgets"): {"spec": {"minAvailable": 1, "selector": _SELECTOR}},
    ("rbac.authorization.k8s.io", "clusterrolebindings"): {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"}
    },
    ("rbac.authorization.k8s.io", "clusterroles"): {},
    ("rbac.authorization.k8s.io", "rolebindings"): {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}
    },
    ("rbac.authorization.k8s.io", "roles"): {},
    ("storage.k8s.io", "csidrivers"): {"spec": {}},
    ("storage.k8s.io", "csinodes"): {"spec": {"drivers": []}},
    ("storage.k8s.io", "csistoragecapacities"): {"storageClassName": "s"},
    ("storage.k8s.io", "storageclasses"): {"provisioner": "x.example/p"},
    ("storage.k8s.io", "volumeattachments"): {
        "spec": {"attacher": "x.example", "nodeName": "n", "source": {"persistentVolumeName": "p"}}
    },
    ("storage.k8s.io", "volumeattributesclasses"): {"driverName": "x.example", "parameters": {"a": "b"}},
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): {
        "spec": {
            "matchConstraints": _VALIDATIONS["matchConstraints"],
            "reinvocationPolicy": "Never",
            "mutations": [
                {"patchType": "JSONPatch", "jsonPatch": {"expression": '[JSONPatch{op: "remove", path: "/x"}]'}}
            ],
        }
    },
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): {"spec": {"policyName": "p"}},
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"webhooks": [_WEBHOOK]},
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): {"spec": _VALIDATIONS},
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): {
        "spec": {"policyName": "p", "validationActions": ["Deny"]}
    },
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {"webhooks": [_WEBHOOK]},
    ("apiextensions.k8s.io", "customresourcedefinitions"): {
        "metadata": {"name": "widgets.x.example"},
        "spec": {
            "group": "x.example",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    },
    ("scheduling.k8s.io", "priorityclasses"): {"value": 1},
    ("coordination.k8s.io", "leases"): {"spec": {}},
    ("node.k8s.io", "runtimeclasses"): {"handler": "h"},
    ("discovery.k8s.io", "endpointslices"): {"addressType": "IPv4", "endpoints": []},
    ("resource.k8s.io", "deviceclasses"): {"spec": {}},
    ("resource.k8s.io", "devicetaintrules"): {"spec": {"taint": {"key": "k", "effect": "NoSchedule"}}},
    ("resource.k8s.io", "resourceclaims"): {"spec": _DEVICES},
    ("resource.k8s.io", "resourceclaimtemplates"): {"spec": {"spec": _DEVICES}},
    ("resource.k8s.io", "resourceslices"): {
        "spec": {
            "driver": "x.example",
            "nodeName": "n",
            "pool": {"name": "p", "resourceSliceCount": 1, "generation": 1},
        }
    },
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): {
        "spec": {"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 100}
    },
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): {
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    },
    ("storagemigration.k8s.io", "storageversionmigrations"): {"spec": {"resource": {"resource": "pods", "group": ""}}},
}

STORED: list[Resource] = [resource for resource in RESOURCES if "create" in resource.verbs and resource.is_stored]


def collection(resource: Resource, namespace: str = "default") -> str:
    prefix = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return (
        f"{prefix}/namespaces/{namespace}/{resource.plural}" if resource.namespaced else f"{prefix}/{resource.plural}"
    )


def minimal(resource: Resource, name: str = "thing") -> Obj:
    body = MINIMAL[(resource.group, resource.plural)]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        **body,
        "metadata": {"name": name, **body.get("metadata", {})},
    }
