"""Rules of pod specs: one error at a time in an otherwise valid pod, with message and field path."""

from copy import deepcopy
from typing import Any

import pytest

from setpoint.kinds.core.podspec import (
    PodOptions,
    default_pod_spec,
    pod_template_options,
    validate_pod_spec,
    validate_pod_template,
)
from setpoint.meta.field import FieldError

BASE: dict[str, Any] = {
    "containers": [{"name": "c", "image": "i"}],
    "volumes": [{"name": "v", "emptyDir": {}}],
}


def broken(container: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    spec = deepcopy(BASE)
    spec.update(fields)
    spec["containers"][0].update(container or {})
    default_pod_spec(spec)
    return spec


def messages(spec: dict[str, Any], **options: bool) -> list[str]:
    errs: list[FieldError] = []
    validate_pod_spec(spec, "spec", errs, options=PodOptions(**options))
    return [error.message() for error in errs]


def test_the_base_pod_is_valid() -> None:
    assert messages(broken()) == []


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"name": ""}, ["name: Required value"]),
        ({"name": "a.b"}, ['name: Invalid value: "a.b": must not contain dots']),
        ({"image": ""}, ["image: Required value"]),
        (
            {"terminationMessagePolicy": "X"},
            ['terminationMessagePolicy: Unsupported value: "X": supported values: "File", "FallbackToLogsOnError"'],
        ),
        (
            {"imagePullPolicy": "X"},
            ['imagePullPolicy: Unsupported value: "X": supported values: "Always", "IfNotPresent", "Never"'],
        ),
        ({"ports": [{"containerPort": 0}]}, ["ports[0].containerPort: Required value"]),
        (
            {"ports": [{"containerPort": 65536}]},
            ["ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive"],
        ),
        (
            {"ports": [{"containerPort": 1, "protocol": "X"}]},
            ['ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"'],
        ),
        (
            {"ports": [{"containerPort": 1, "name": "n"}, {"containerPort": 2, "name": "n"}]},
            ['ports[1].name: Duplicate value: "n"'],
        ),
        (
            {"ports": [{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]},
            ['ports[1].hostPort: Duplicate value: "TCP//5"'],
        ),
        ({"env": [{"name": ""}]}, ["env[0].name: Required value"]),
        (
            {"env": [{"name": "A", "value": "1", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            ['env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty'],
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]},
            [
                'env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.x": error converting fieldPath: field label not supported: spec.x'
            ],
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}}]},
            [
                'env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor\'s values 1m and 1 are supported with the cpu resource'
            ],
        ),
        ({"env": [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "w", "path": "p", "key": "K"}}}]}, None),
        ({"envFrom": [{}]}, ['envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`']),
        ({"volumeMounts": [{"name": "w", "mountPath": "/"}]}, ['volumeMounts[0].name: Not found: "w"']),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/", "subPath": "../x"}]},
            ["volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'"],
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/", "mountPropagation": "Bidirectional"}]},
            [
                "volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers"
            ],
        ),
        (
            {"volumeDevices": [{"name": "v", "devicePath": "/d"}]},
            [
                'volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode'
            ],
        ),
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            ['resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
        ),
        (
            {"resources": {"requests": {"example.com/x": "1"}}},
            ["resources.limits: Required value: Limit must be set for non overcommitable resources"],
        ),
        (
            {"resources": {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}},
            [
                'resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi'
            ],
        ),
        (
            {"resources": {"limits": {"hugepages-2Mi": "2Mi"}}},
            ["resources: Forbidden: HugePages require cpu or memory"],
        ),
        (
            {"resources": {"limits": {"pods": "1"}}},
            ['resources.limits[pods]: Invalid value: "pods": must be a standard resource for containers'],
        ),
        (
            {"resources": {"claims": [{"name": "x"}]}},
            ['resources.claims[0]: Not found: "x": must be one of the names in pod.spec.resourceClaims which is empty'],
        ),
        ({"livenessProbe": {}}, ["livenessProbe: Required value: must specify a handler type"]),
        (
            {"livenessProbe": {"exec": {}, "tcpSocket": {"port": 1}}},
            [
                "livenessProbe.exec.command: Required value",
                "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
            ],
        ),
        (
            {"livenessProbe": {"tcpSocket": {"port": 1}, "successThreshold": 2}},
            ["livenessProbe.successThreshold: Invalid value: 2: must be 1"],
        ),
        (
            {"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}},
            [
                "lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)"
            ],
        ),
        (
            {"securityContext": {"runAsUser": -1}},
            ["securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"],
        ),
        (
            {"securityContext": {"procMount": "Unmasked"}},
            ['securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`'],
        ),
        (
            {"securityContext": {"seccompProfile": {"type": "Unconfined", "localhostProfile": "x"}}},
            [
                'securityContext.seccompProfile.localhostProfile: Invalid value: {"Type":"Unconfined","LocalhostProfile":"x"}: can only be set when seccomp type is Localhost'
            ],
        ),
        (
            {"securityContext": {"windowsOptions": {"runAsUserName": "\x01<"}}},
            [
                'securityContext.windowsOptions.runAsUserName: Invalid value: "\\u0001\\u003c": runAsUserName cannot contain control characters'
            ],
        ),
        (
            {"restartPolicyRules": [{"action": "Restart"}]},
            [
                "restartPolicy: Required value: must specify restartPolicy when restart rules are used",
                "restartPolicyRules[0].exitCodes: Required value: must be specified",
            ],
        ),
        (
            {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "X"}]},
            ['resizePolicy: Unsupported value: "X": supported values: "NotRequired", "RestartContainer"'],
        ),
    ],
)
def test_containers(container: dict[str, Any], expected: list[str] | None) -> None:
    if expected is None:
        expected = ['env[0].valueFrom.fileKeyRef.volumeName: Not found: "w"']
    assert messages(broken(container)) == [f"spec.containers[0].{text}" for text in expected]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"restartPolicy": "X"},
            ['restartPolicy: Unsupported value: "X": supported values: "Always", "OnFailure", "Never"'],
        ),
        ({"dnsPolicy": "None"}, ["dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"]),
        (
            {"dnsConfig": {"nameservers": ["010.1.1.1"]}},
            ['dnsConfig.nameservers[0]: Invalid value: "010.1.1.1": must not have leading 0s'],
        ),
        ({"nodeSelector": {"a b": "c"}}, None),
        (
            {"activeDeadlineSeconds": 0},
            ["activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        ),
        ({"hostname": "a.b"}, ['hostname: Invalid value: "a.b": must not contain dots']),
        (
            {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
            ["tolerations[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'"],
        ),
        (
            {"tolerations": [{"key": "k", "operator": "Gt", "value": "1"}]},
            ['tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"'],
        ),
        ({"schedulingGates": [{"name": "g"}, {"name": "g"}]}, ['schedulingGates[1]: Duplicate value: "g"']),
        ({"os": {"name": "plan9"}}, ['os: Unsupported value: "plan9": supported values: "linux", "windows"']),
        ({"os": {"name": "windows"}, "hostPID": True}, ["hostPID: Forbidden: cannot be set for a windows pod"]),
        ({"hostUsers": False, "hostNetwork": True}, ["hostNetwork: Forbidden: when `hostUsers` is false"]),
        (
            {"shareProcessNamespace": True, "hostPID": True},
            ["shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"],
        ),
        (
            {"securityContext": {"sysctls": [{"name": "net.x"}]}, "hostNetwork": True},
            [
                "securityContext.sysctls[0].name: Invalid value: \"net.x\": may not be specified when 'hostNetwork' is true"
            ],
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
            ["topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero"],
        ),
        ({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}, None),
        (
            {"resourceClaims": [{"name": "r"}]},
            [
                'resourceClaims[0]: Invalid value: {"Name":"r","ResourceClaimName":null,"ResourceClaimTemplateName":null}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`'
            ],
        ),
        (
            {"resources": {"requests": {"ephemeral-storage": "1"}}},
            [
                'resources.requests[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"'
            ],
        ),
        (
            {"initContainers": [{"name": "c", "image": "i", "readinessProbe": {"tcpSocket": {"port": 1}}}]},
            [
                'initContainers[0].name: Duplicate value: "c"',
                "initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            ],
        ),
    ],
)
def test_pod_rules(fields: dict[str, Any], expected: list[str] | None) -> None:
    found = messages(broken(**fields))
    if expected is None:
        assert found and all(text.startswith(f"spec.{next(iter(fields))}") for text in found)
    else:
        assert found == [f"spec.{text}" for text in expected]


def test_host_port_is_required_in_a_pod_but_not_in_a_template() -> None:
    spec = broken({"ports": [{"containerPort": 1}]}, hostNetwork=True)
    assert messages(spec) == []
    assert messages(spec, is_pod=True) == [
        "spec.containers[0].ports[0].hostPort: Invalid value: 0: must match `containerPort` when `hostNetwork` is true"
    ]


def test_field_paths_and_forbidden_fields_of_templates() -> None:
    spec = broken(ephemeralContainers=[{"name": "e", "image": "i"}])
    errs: list[FieldError] = []
    validate_pod_template({"metadata": {"labels": {"a": "b c"}}, "spec": spec}, "spec.template", errs)
    assert [error.field for error in errs] == ["spec.template.labels", "spec.template.spec.ephemeralContainers"]


def test_annotation_and_field_must_agree() -> None:
    spec = broken({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}})
    meta = {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"}}
    errs: list[FieldError] = []
    validate_pod_template({"metadata": meta, "spec": spec}, "t", errs)
    assert [error.message() for error in errs] == [
        "t.spec.containers[0].securityContext.appArmorProfile.type: Forbidden: "
        "apparmor type in annotation and field must match"
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"tolerations": [{"key": "k", "operator": "Gt", "value": "1"}]},
        {"hostUsers": False, "hostNetwork": True},
        {"hostNetwork": True, "securityContext": {"sysctls": [{"name": "net.x", "value": "1"}]}},
        {"volumes": [{"name": "v", "image": {"pullPolicy": "Always"}}]},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]}]
                    }
                }
            }
        },
    ],
)
def test_rules_that_the_stored_template_breaks_are_not_enforced(fields: dict[str, Any]) -> None:
    template = {"spec": broken(**fields)}
    for options, clean in ((pod_template_options(None), False), (pod_template_options(template), True)):
        errs: list[FieldError] = []
        validate_pod_template(template, "t", errs, options=options)
        assert (not errs) is clean
