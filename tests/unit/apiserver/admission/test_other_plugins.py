from __future__ import annotations

from typing import Any

import pytest
from admission_attributes import ManualClock, ObjectReader, pod, resource, write

from setpoint.apiserver.admission.always import AlwaysDeny
from setpoint.apiserver.admission.always_pull_images import AlwaysPullImages
from setpoint.apiserver.admission.default_classes import DefaultIngressClass, DefaultStorageClass
from setpoint.apiserver.admission.deny_service_external_ips import DenyServiceExternalIPs
from setpoint.apiserver.admission.event_rate_limit import EventRateLimit, Limit
from setpoint.apiserver.admission.limit_pod_hard_anti_affinity_topology import LimitPodHardAntiAffinityTopology
from setpoint.apiserver.admission.node_declared_feature_validator import NodeDeclaredFeatureValidator
from setpoint.apiserver.admission.persistent_volume_claim_resize import PersistentVolumeClaimResize
from setpoint.apiserver.admission.pod_resize_validator import PodResizeValidator
from setpoint.apiserver.admission.storage_object_in_use_protection import StorageObjectInUseProtection
from setpoint.meta.errors import Forbidden, PlainServerError, TooManyRequests
from setpoint.meta.objects import Obj


def claim(size: str = "1Gi", storage_class: str | None = None, phase: str = "Pending") -> Obj:
    spec: Obj = {"resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {"metadata": {"name": "x"}, "spec": spec, "status": {"phase": phase}}


def storage_class(reader: ObjectReader, name: str, made: str, default: str = "", **more: Any) -> None:
    annotations = {"storageclass.kubernetes.io/is-default-class": default} if default else {}
    meta = {"creationTimestamp": made, "annotations": annotations}
    reader.put("storage.k8s.io", "storageclasses", "", name, metadata=meta, **more)


async def test_the_newest_default_class_wins(reader: ObjectReader) -> None:
    for name, made, default in (
        ("old", "2026-01-01", "true"),
        ("b", "2026-02-01", "true"),
        ("a", "2026-02-01", "true"),
        ("newest", "2026-03-01", "false"),
    ):
        storage_class(reader, name, made, default)
    for given, expected in ((None, "a"), ("", ""), ("mine", "mine")):
        attrs = write("persistentvolumeclaims", claim(storage_class=given))
        await DefaultStorageClass(reader).mutate(attrs)
        assert attrs.obj is not None
        assert attrs.obj["spec"].get("storageClassName") == expected


async def test_an_ingress_gets_the_default_class(reader: ObjectReader) -> None:
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"}
    reader.put("networking.k8s.io", "ingressclasses", "", "nginx", metadata={"annotations": annotations})
    for meta, expected in (({}, "nginx"), ({"annotations": {"kubernetes.io/ingress.class": "x"}}, None)):
        attrs = write("ingresses", {"metadata": {"name": "x", **meta}, "spec": {}}, group="networking.k8s.io")
        await DefaultIngressClass(reader).mutate(attrs)
        assert attrs.obj is not None
        assert attrs.obj["spec"].get("ingressClassName") == expected


async def test_protection_finalizers() -> None:
    attrs = write("persistentvolumeclaims", {"metadata": {"finalizers": ["a/b"]}})
    for _ in range(2):
        await StorageObjectInUseProtection().mutate(attrs)
    assert attrs.obj is not None
    assert attrs.obj["metadata"]["finalizers"] == ["a/b", "kubernetes.io/pvc-protection"]


async def test_claims_grow_if_their_class_allows_expansion(reader: ObjectReader) -> None:
    storage_class(reader, "grows", "2026-01-01", allowVolumeExpansion=True)
    storage_class(reader, "fixed", "2026-01-01")
    plugin = PersistentVolumeClaimResize(reader)

    async def resize(name: str, phase: str = "Bound", size: str = "2Gi") -> None:
        await plugin.validate(write("persistentvolumeclaims", claim(size, name, phase), claim("1Gi", name, phase)))

    await resize("grows")
    await resize("fixed", size="1024Mi")
    with pytest.raises(Forbidden, match="Only bound persistent volume claims can be expanded"):
        await resize("grows", "Pending")
    for name in ("fixed", "gone", ""):
        with pytest.raises(Forbidden, match="only dynamically provisioned pvc can be resized"):
            await resize(name)


async def test_images_are_always_pulled() -> None:
    """All kinds of containers are covered (CVE-2023-2727 missed one)."""
    attrs = write("pods", pod({"volumes": [{"name": "v", "image": {"reference": "r"}}]}, {"imagePullPolicy": "Never"}))
    await AlwaysPullImages().mutate(attrs)
    await AlwaysPullImages().validate(attrs)
    assert attrs.obj is not None
    assert attrs.obj["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    assert attrs.obj["spec"]["volumes"][0]["image"]["pullPolicy"] == "Always"
    with pytest.raises(PlainServerError, match=r'spec.containers\[0\].imagePullPolicy: Unsupported value: "Never"'):
        await AlwaysPullImages().validate(write("pods", pod(container={"imagePullPolicy": "Never"})))
    await AlwaysPullImages().validate(write("pods", pod(container={"imagePullPolicy": "Never"}), pod()))
    for kind in ("initContainers", "ephemeralContainers"):
        attrs = write("pods", pod({kind: [{"name": "other", "image": "i", "imagePullPolicy": "Never"}]}))
        with pytest.raises(PlainServerError, match=rf"spec.{kind}\[0\].imagePullPolicy: Unsupported value"):
            await AlwaysPullImages().validate(attrs)
        await AlwaysPullImages().mutate(attrs)
        assert attrs.obj is not None and attrs.obj["spec"][kind][0]["imagePullPolicy"] == "Always"


async def test_no_new_external_ips() -> None:
    """Services may not add external IPs (CVE-2020-8554)."""

    def service(*addresses: str) -> Obj:
        return {"metadata": {"name": "x"}, "spec": {"externalIPs": list(addresses)}}

    plugin = DenyServiceExternalIPs()
    await plugin.validate(write("services", service()))
    await plugin.validate(write("services", service("1.1.1.1"), service("1.1.1.1", "2.2.2.2")))
    for new, old in ((service("1.1.1.1"), None), (service("3.3.3.3"), service("1.1.1.1"))):
        with pytest.raises(Forbidden, match="Use of external IPs is denied by admission control"):
            await plugin.validate(write("services", new, old))


async def test_required_anti_affinity_only_by_host() -> None:
    def spread(key: str) -> Obj:
        term = {"topologyKey": key}
        return pod({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})

    await LimitPodHardAntiAffinityTopology().validate(write("pods", spread("kubernetes.io/hostname")))
    with pytest.raises(Forbidden, match=r"has TopologyKey zone but only key kubernetes\.io/hostname is allowed"):
        await LimitPodHardAntiAffinityTopology().validate(write("pods", spread("zone")))


@pytest.mark.parametrize(
    ("kind", "other"),
    [("Namespace", {"namespace": "ns2"}), ("User", None), ("SourceAndObject", None), ("Server", None)],
)
async def test_events_are_rate_limited(clock: ManualClock, kind: Any, other: Any) -> None:
    plugin = EventRateLimit(clock, [Limit(kind, qps=1, burst=2)])
    event = {"metadata": {"name": "x"}, "involvedObject": {"name": "a"}}
    for _ in range(2):
        await plugin.validate(write("events", event))
    with pytest.raises(TooManyRequests, match=f"limit reached on type {kind} for key"):
        await plugin.validate(write("events", event))
    await plugin.validate(write("events", event, dry_run=True))
    if other:
        await plugin.validate(write("events", event, **other))
    await clock.sleep(1)
    await plugin.validate(write("events", event))


async def test_keys_of_event_limits_are_evicted(clock: ManualClock) -> None:
    plugin = EventRateLimit(clock, [Limit("Namespace", qps=1, burst=1, cache_size=10)])
    for n in range(100):
        await plugin.validate(write("events", {"metadata": {}}, namespace=f"n{n}"))
    await plugin.validate(write("events", {"metadata": {}}, namespace="n0"))


async def test_a_resize_must_fit_the_node(reader: ObjectReader) -> None:
    reader.put("", "nodes", "", "n", status={"allocatable": {"cpu": "2", "memory": "1Gi"}})
    reader.put("", "nodes", "", "w", metadata={"labels": {"kubernetes.io/os": "windows"}})

    async def resize(cpu: str, node: str = "n") -> None:
        new = pod({"nodeName": node}, {"resources": {"requests": {"cpu": cpu}}}, generation=2)
        old = pod({"nodeName": node}, generation=1)
        await PodResizeValidator(reader).validate(write("pods", new, old, subresource="resize"))

    await resize("2")
    for cpu, node, why, reason in (
        ("3", "n", "enough allocatable resources: cpu, requested: 3000, allocatable: 2000", "NodeCapacity"),
        ("1", "w", 'pod resize is only supported on linux nodes, node "w" is "windows"', "UnsupportedPlatform"),
    ):
        with pytest.raises(Forbidden, match=why) as caught:
            await resize(cpu, node)
        assert caught.value.details is not None
        assert caught.value.details["causes"] == [{"reason": reason}]
    with pytest.raises(Forbidden, match='node "gone" not found'):
        await resize("1", "gone")


@pytest.mark.parametrize(
    ("now", "before", "feature"),
    [
        ({"resources": {"requests": {"cpu": "1"}}}, {}, "InPlacePodLevelResourcesVerticalScaling"),
        (
            {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]},
            {"initContainers": [{"name": "i", "resources": {}}]},
            "InPlacePodVerticalScalingInitContainers",
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "2Mi"}}]},
            {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]},
            "InPlacePodVerticalScalingMemoryBackedVolumes",
        ),
    ],
)
async def test_nodes_declare_supported_features(reader: ObjectReader, now: Obj, before: Obj, feature: str) -> None:
    reader.put("", "nodes", "", "n", status={})
    plugin = NodeDeclaredFeatureValidator(reader)
    attrs = write(
        "pods",
        pod({"nodeName": "n", **now}, generation=2),
        pod({"nodeName": "n", **before}, generation=1),
        subresource="resize",
    )
    with pytest.raises(Forbidden, match=f'pod update requires features {feature} which are not available on node "n"'):
        await plugin.validate(attrs)
    reader.put("", "nodes", "", "n", status={"declaredFeatures": [feature]})
    await plugin.validate(attrs)


async def test_everything_can_be_denied() -> None:
    assert AlwaysDeny().handles("DELETE", resource("", "pods"), "")
    with pytest.raises(Forbidden, match="admission control is denying all modifications"):
        await AlwaysDeny().mutate(write("pods", pod()))
