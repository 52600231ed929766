from typing import Any

import pytest

from setpoint.kinds.core.podspec import pod_template_warnings


def warnings(spec: dict[str, Any], annotations: dict[str, str] | None = None) -> list[str]:
    full = {"containers": [{"name": "c"}], **spec}
    return pod_template_warnings({"metadata": {"annotations": annotations or {}}, "spec": full}, "t")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"nodeSelector": {"beta.kubernetes.io/os": "x"}},
            't.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead',
        ),
        (
            {"volumes": [{"name": "v", "gitRepo": {}}]},
            "t.spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z"}]},
            "t.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
        ),
        ({"hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}]}, 't.spec.hostAliases[1].ip: duplicate ip "1.1.1.1"'),
        ({"imagePullSecrets": [{}]}, 't.spec.imagePullSecrets[0].name: invalid empty name ""'),
        (
            {"overhead": {"memory": "100m"}},
            't.spec.overhead[memory]: fractional byte value "100m" is invalid, must be an integer',
        ),
        (
            {"terminationGracePeriodSeconds": -1},
            "t.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
        ),
        (
            {"dnsConfig": {"nameservers": ["FE80::1"]}},
            't.spec.dnsConfig.nameservers[0]: IPv6 address "FE80::1" should be in RFC 5952 canonical format ("fe80::1")',
        ),
        (
            {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]},
            't.spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply',
        ),
        (
            {
                "containers": [
                    {
                        "name": "c",
                        "ports": [
                            {"containerPort": 1, "protocol": "TCP"},
                            {"containerPort": 1, "protocol": "TCP", "hostPort": 2},
                        ],
                    }
                ]
            },
            "t.spec.containers[0].ports[1]: overlapping port definition with t.spec.containers[0].ports[0]",
        ),
        (
            {
                "volumes": [
                    {
                        "name": "v",
                        "configMap": {"name": "m", "items": [{"key": "a", "path": "p"}, {"key": "b", "path": "p/q"}]},
                    }
                ]
            },
            'volume "v" (ConfigMap "m"): overlapping paths: "p/q" with "p"',
        ),
    ],
)
def test_each(spec: dict[str, Any], expected: str) -> None:
    assert warnings(spec) == [expected]


def test_a_variable_may_refer_to_its_previous_value() -> None:
    variables = [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]
    assert warnings({"containers": [{"name": "c", "env": variables}]}) == []


def test_old_annotations() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/c"
    expected = f't.metadata.annotations[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'
    assert warnings({}, {key: "unconfined"}) == [expected]
    assert warnings({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, {key: "unconfined"}) == []
