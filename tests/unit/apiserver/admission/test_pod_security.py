from __future__ import annotations

from typing import Any

import pytest
from admission_attributes import ManualClock, ObjectReader, pod, resource, write

from setpoint.apiserver.admission.plugin import Attributes
from setpoint.apiserver.admission.pod_security.plugin import PodSecurity
from setpoint.apiserver.admission.pod_security.policy import (
    _DEFAULT,
    LATEST,
    PodSecuritySettings,
    Standard,
    evaluate,
    policy_of,
)
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Forbidden, Invalid

PREFIX = "pod-security.kubernetes.io/"
HARDENED = {
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
    }
}


@pytest.fixture
def plugin(reader: ObjectReader, clock: ManualClock) -> PodSecurity:
    return PodSecurity(reader, clock)


def label(reader: ObjectReader, **labels: str) -> None:
    found = {PREFIX + key.replace("_", "-"): value for key, value in labels.items()}
    reader.put("", "namespaces", "", "ns", metadata={"labels": found})


def texts(level: str, obj: dict[str, Any], minor: int = LATEST) -> list[str]:
    return [str(finding) for finding in evaluate(Standard(level, minor), obj["metadata"], obj["spec"])]


def secured(**context: Any) -> dict[str, Any]:
    return {"securityContext": context}


@pytest.mark.parametrize(
    ("obj", "finding"),
    [
        (pod({"hostNetwork": True, "hostIPC": True}), "host namespaces (hostNetwork=true, hostIPC=true)"),
        (
            pod(container=secured(privileged=True)),
            'privileged (container "c" must not set securityContext.privileged=true)',
        ),
        (
            pod(container=secured(capabilities={"add": ["SYS_TIME", "CHOWN", "NET_ADMIN"]})),
            'non-default capabilities (container "c" must not include "NET_ADMIN", "SYS_TIME" in '
            "securityContext.capabilities.add)",
        ),
        (pod({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), 'hostPath volumes (volume "v")'),
        (
            pod(container={"ports": [{"hostPort": 90}, {"hostPort": 80}, {"containerPort": 1}]}),
            'hostPort (container "c" uses hostPorts 80, 90)',
        ),
        (
            pod(container={"livenessProbe": {"httpGet": {"host": "h"}}}),
            'probe or lifecycle host (container "c" uses probe or lifecycle host "h")',
        ),
        (
            pod(container=secured(procMount="Unmasked")),
            'procMount (container "c" must not set securityContext.procMount to "Unmasked")',
        ),
        (
            pod(secured(seLinuxOptions={"type": "t", "user": "u"})),
            'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "t"; user may not be set)',
        ),
        (
            pod(secured(seccompProfile={"type": "Unconfined"}), secured(seccompProfile={"type": "Unconfined"})),
            'seccompProfile (pod and container "c" must not set securityContext.seccompProfile.type to "Unconfined")',
        ),
        (pod(secured(sysctls=[{"name": "kernel.msgmax"}])), "forbidden sysctls (kernel.msgmax)"),
        (
            pod(secured(windowsOptions={"hostProcess": True})),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            pod(annotations={"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}),
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to "
            '"container.apparmor.security.beta.kubernetes.io/c="unconfined"")',
        ),
    ],
)
def test_baseline_violations(obj: dict[str, Any], finding: str) -> None:
    assert texts("baseline", obj) == [finding]


@pytest.mark.parametrize("kind", ["initContainers", "containers", "ephemeralContainers"])
def test_all_kinds_of_containers_are_checked(kind: str) -> None:
    obj = pod()
    obj["spec"] = {kind: [{"name": "sneaky", **secured(privileged=True)}]}
    assert texts("baseline", obj)
    assert any("sneaky" in text and "drop" in text for text in texts("restricted", obj))


def test_restricted_requirements() -> None:
    assert texts("baseline", pod()) == []
    assert texts("restricted", pod()) == [
        'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)',
        'unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"])',
        'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)',
        'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or '
        '"Localhost")',
    ]
    assert texts("restricted", pod(container=HARDENED)) == []


@pytest.mark.parametrize(
    ("spec", "finding"),
    [
        (
            {"volumes": [{"name": "v", "nfs": {}}, {"name": "w", "hostPath": {}}, {"name": "e", "emptyDir": {}}]},
            'restricted volume types (volumes "v", "w" use restricted volume types "hostPath", "nfs")',
        ),
        (secured(runAsUser=0), "runAsUser=0 (pod must not set runAsUser=0)"),
        (secured(runAsNonRoot=False), "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)"),
    ],
)
def test_restricted_violations(spec: dict[str, Any], finding: str) -> None:
    assert texts("restricted", pod(spec, HARDENED)) == [finding]


def test_older_versions_check_less() -> None:
    bare = pod()
    assert [text.split(" (")[0] for text in texts("restricted", bare, 0)] == ["runAsNonRoot != true"]
    assert len(texts("restricted", bare, 21)) == 3
    tcp = pod(secured(sysctls=[{"name": "net.ipv4.tcp_rmem"}]))
    assert texts("baseline", tcp, 31) and not texts("baseline", tcp, 32)
    assert texts("baseline", tcp, 99) == []


def test_windows_and_user_namespaces_are_exempt() -> None:
    assert texts("restricted", pod({"os": {"name": "windows"}, **secured(runAsNonRoot=True)})) == []
    own_users = pod({"hostUsers": False}, {"securityContext": {**HARDENED["securityContext"], "runAsNonRoot": False}})
    assert texts("restricted", own_users) == []
    assert texts("restricted", own_users, 34)


def test_labels_define_the_policy() -> None:
    policy = policy_of({PREFIX + "enforce": "baseline", PREFIX + "enforce-version": "v1.30"})
    assert (str(policy.enforce), str(policy.warn), str(policy.audit)) == (
        "baseline:v1.30",
        "baseline:v1.30",
        "privileged:latest",
    )
    broken = policy_of({PREFIX + "enforce": "bogus", PREFIX + "warn": "bogus", PREFIX + "audit-version": "v2"})
    assert (broken.enforce.level, broken.warn.level) == ("restricted", "privileged")
    assert [error.detail for error in broken.errors] == [
        "must be one of privileged, baseline, restricted",
        'must be "latest" or "v1.x"',
        "must be one of privileged, baseline, restricted",
    ]


async def test_enforcing(reader: ObjectReader, plugin: PodSecurity) -> None:
    bad = pod(container=secured(privileged=True))
    await plugin.validate(write("pods", bad))
    label(reader, enforce="baseline", audit="restricted", warn="restricted")
    attrs = write("pods", bad)
    with pytest.raises(Forbidden) as caught:
        await plugin.validate(attrs)
    expected = 'pods "x" is forbidden: violates PodSecurity "baseline:latest": privileged ('
    assert caught.value.message.startswith(expected)
    assert not attrs.warnings
    assert attrs.audit[PREFIX + "audit-violations"].startswith('would violate PodSecurity "restricted:latest": ')
    fair = write("pods", pod())
    await plugin.validate(fair)
    assert next(iter(fair.warnings)).startswith(
        'would violate PodSecurity "restricted:latest": allowPrivilegeEscalation'
    )


async def test_only_significant_updates_are_checked(reader: ObjectReader, plugin: PodSecurity) -> None:
    label(reader, enforce="baseline")
    old = pod(container=secured(privileged=True))
    await plugin.validate(write("pods", pod(container=secured(privileged=True), labels={"a": "b"}), old))
    with pytest.raises(Forbidden):
        await plugin.validate(write("pods", pod(container={"image": "new", **secured(privileged=True)}), old))
    debugged = pod({"ephemeralContainers": [{"name": "e", "image": "d", **secured(privileged=True)}]})
    with pytest.raises(Forbidden):
        await plugin.validate(write("pods", debugged, pod(), subresource="ephemeralcontainers"))


@pytest.mark.parametrize(("plural", "group"), [("deployments", "apps"), ("cronjobs", "batch"), ("podtemplates", "")])
async def test_workloads_get_warnings(reader: ObjectReader, plugin: PodSecurity, plural: str, group: str) -> None:
    label(reader, enforce="baseline")
    template = {"metadata": {}, "spec": {"hostPID": True, "containers": []}}
    obj: dict[str, Any] = {"metadata": {"name": "x"}, "spec": {"template": template}}
    if plural == "cronjobs":
        obj["spec"] = {"jobTemplate": {"spec": {"template": template}}}
    elif plural == "podtemplates":
        obj = {"metadata": {"name": "x"}, "template": template}
    attrs = write(plural, obj, group=group)
    await plugin.validate(attrs)
    assert list(attrs.warnings) == ['would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)']


def relabelled(before: dict[str, str], after: dict[str, str]) -> Attributes:
    old, new = (
        {"metadata": {"name": "ns", "labels": {PREFIX + key: value for key, value in labels.items()}}}
        for labels in (before, after)
    )
    return write("namespaces", new, old, name="ns")


async def test_invalid_labels_are_refused_once(plugin: PodSecurity) -> None:
    with pytest.raises(Invalid, match="must be one of privileged, baseline, restricted"):
        await plugin.validate(relabelled({}, {"enforce": "bogus"}))
    await plugin.validate(relabelled({"enforce": "bogus"}, {"enforce": "bogus"}))


async def test_stricter_labels_warn_about_existing_pods(reader: ObjectReader, plugin: PodSecurity) -> None:
    for name in ("b", "a"):
        reader.put("", "pods", "ns", name, spec={"containers": [{"name": "c", **secured(privileged=True)}]})
    reader.put("", "pods", "ns", "fine", spec={"containers": []})
    attrs = relabelled({"enforce": "privileged"}, {"enforce": "baseline"})
    await plugin.validate(attrs)
    assert list(attrs.warnings) == [
        'existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest"',
        "a (and 1 other pod): privileged",
    ]
    laxer = relabelled({"enforce": "restricted"}, {"enforce": "baseline"})
    await plugin.validate(laxer)
    assert not laxer.warnings


def test_ignored_subresources(plugin: PodSecurity) -> None:
    pods = resource("", "pods")
    assert not plugin.handles("CREATE", pods, "eviction")
    assert plugin.handles("UPDATE", pods, "ephemeralcontainers")
    assert plugin.handles("UPDATE", pods, "something-new")


async def test_exemptions_are_audited(reader: ObjectReader, clock: ManualClock) -> None:
    label(reader, enforce="restricted", warn="restricted", audit="restricted")
    nobody = frozenset[str]()
    named = frozenset({"alice", "ns", "sandbox"})
    for settings, reason in (
        (PodSecuritySettings(usernames=named), "user"),
        (PodSecuritySettings(namespaces=named), "namespace"),
        (PodSecuritySettings(runtime_classes=named), "runtimeClass"),
        (PodSecuritySettings(usernames=named, namespaces=named, runtime_classes=named), "namespace"),
    ):
        plugin = PodSecurity(reader, clock, settings)
        spec = {"runtimeClassName": "sandbox", "hostPID": True}
        template = {"metadata": {}, "spec": {"containers": [], **spec}}
        workload = {"metadata": {"name": "x"}, "spec": {"template": template}}
        for attrs in (
            write("pods", pod(spec), user=UserInfo("alice")),
            write("deployments", workload, group="apps", user=UserInfo("alice")),
        ):
            await plugin.validate(attrs)
            assert attrs.audit == {PREFIX + "exempt": reason} and not attrs.warnings
    with pytest.raises(Forbidden):
        await PodSecurity(reader, clock, PodSecuritySettings(_DEFAULT, nobody)).validate(write("pods", pod(spec)))
