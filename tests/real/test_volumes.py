"""Volumes on a real node: contents, updates, permissions, limits, and data that outlives Pods."""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from kubectl_runner import until
from real_kubectl import PodClient, pod
from real_machine import RealMachine
from real_registry import Registry

from setpoint.meta.times import format_time

pytestmark = pytest.mark.real
CLAIM: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}},
}


def with_volume(
    name: str, registry: Registry, volume: dict[str, Any], mount: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return a Pod that sleeps and has one volume at /data."""
    mounts = {"volumeMounts": [{"name": "volume", "mountPath": "/data", **(mount or {})}]}
    volumes = [{"name": "volume", **volume}]
    return pod(name, registry.image("busybox"), "sleep", "1000", container=mounts, volumes=volumes, **spec)


def issued_status(request: dict[str, Any]) -> dict[str, Any]:
    """Return the status in which a signer issues what a PodCertificateRequest asks for."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now, end = (datetime.now(UTC).replace(microsecond=0) + timedelta(hours=each) for each in (0, 1))
    asked = x509.load_der_x509_csr(b64decode(request["spec"]["stubPKCS10Request"]))
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(asked.public_key())
    made = builder.serial_number(1).not_valid_before(now).not_valid_after(end).sign(key, SHA256())
    times = {"notBefore": now, "notAfter": end, "beginRefreshAt": now + timedelta(minutes=30)}
    condition = {"type": "Issued", "status": "True", "reason": "Issued", "message": ""}
    return {
        "conditions": [{**condition, "lastTransitionTime": format_time(now)}],
        "certificateChain": made.public_bytes(Encoding.PEM).decode(),
        **{field: format_time(at) for field, at in times.items()},
    }


def test_update_of_a_config_map_is_seen_in_the_file(pods: PodClient, registry: Registry) -> None:
    pods.kubectl("create", "configmap", "settings", "--from-literal=key=one", "--from-literal=other=same")
    pods.run(with_volume("reader", registry, {"configMap": {"name": "settings"}}))
    assert pods.execute("reader", "cat /data/key; readlink /data/key") == "one..data/key\n"
    pods.kubectl("patch", "configmap", "settings", "--patch", '{"data":{"key":"two","added":"three"}}')
    until(lambda: pods.execute("reader", "cat /data/key") == "two", 100.0)
    assert pods.execute("reader", "cat /data/added /data/other") == "threesame"
    assert pods.status("reader")["restartCount"] == 0


def test_secret_is_private_and_in_memory(pods: PodClient, registry: Registry) -> None:
    pods.kubectl("create", "secret", "generic", "key", "--from-literal=password=secret")
    volume = {"secret": {"secretName": "key", "defaultMode": 0o400}}
    pods.run(with_volume("reader", registry, volume, {"readOnly": True}))
    assert pods.execute("reader", "cat /data/password; stat -L -c %a /data/password") == "secret400\n"
    assert "tmpfs" in pods.execute("reader", "grep ' /data ' /proc/mounts")
    assert pods.kubectl.run("exec", "reader", "--", "touch", "/data/new").code != 0


def test_pod_waits_for_its_config_map(pods: PodClient, registry: Registry) -> None:
    pods.apply(with_volume("waits", registry, {"configMap": {"name": "later"}}))
    message = 'MountVolume.SetUp failed for volume "volume" : configmap "later" not found'
    pods.has_event("waits", "FailedMount", message)
    assert pods.get("waits")["status"]["phase"] == "Pending"
    pods.kubectl("create", "configmap", "later", "--from-literal=key=there")
    pods.wait_ready("waits", 90.0)
    assert pods.execute("waits", "cat /data/key") == "there"


def test_service_account_token_and_downward_api(pods: PodClient, registry: Registry) -> None:
    found = pods.run(pod("reader", registry.image("busybox"), "sleep", "1000"))
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    token, namespace, ca = (
        pods.execute("reader", f"cat {account}/{file}") for file in ("token", "namespace", "ca.crt")
    )
    assert namespace == pods.kubectl.namespace
    assert ca.startswith("-----BEGIN CERTIFICATE-----")
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = json.loads(pods.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(review)))
    assert answer["status"]["user"]["username"] == f"system:serviceaccount:{namespace}:default"
    assert answer["status"]["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [found["metadata"]["uid"]]

    items = [
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
    ]
    pods.run(with_volume("described", registry, {"downwardAPI": {"items": items}}))
    assert pods.execute("described", "cat /data/name /data/labels") == 'describedapp="described"'
    pods.kubectl("label", "pod", "described", "tier=front")
    until(lambda: 'tier="front"' in pods.execute("described", "cat /data/labels"), 100.0)


def test_pod_certificate_is_requested_and_waited_for(pods: PodClient, registry: Registry) -> None:
    source = {"signerName": "example.com/signer", "keyType": "ED25519", "credentialBundlePath": "bundle.pem"}
    volume = {"projected": {"sources": [{"podCertificate": source}]}}
    pods.apply(with_volume("client", registry, volume))
    message = 'MountVolume.SetUp failed for volume "volume" : credential bundle is not issued yet'
    pods.has_event("client", "FailedMount", message)
    (request,) = pods.kubectl.get("podcertificaterequests")["items"]
    chain = issued_status(request)
    patch = ("patch", "podcertificaterequest", request["metadata"]["name"], "--subresource=status", "--type=merge")
    pods.kubectl(*patch, "-p", json.dumps({"status": chain}))
    pods.wait_ready("client", 60.0)
    text = pods.execute("client", "cat /data/bundle.pem; stat -L -c %a /data/bundle.pem")
    assert text.startswith("-----BEGIN PRIVATE KEY-----\n")
    assert text.endswith(f"-----END PRIVATE KEY-----\n{chain['certificateChain']}644\n")
    assert "tmpfs" in pods.execute("client", "grep ' /data ' /proc/mounts")


def test_data_of_a_claim_survives_its_pod(pods: PodClient, registry: Registry, machine: RealMachine) -> None:
    volume = {"persistentVolumeClaim": {"claimName": "data"}}
    pods.apply(CLAIM)
    pods.run(with_volume("writer", registry, volume))
    pods.execute("writer", "echo kept > /data/file")
    pods.delete("writer", "--timeout=60s")
    pods.run(with_volume("reader", registry, volume))
    assert pods.execute("reader", "cat /data/file") == "kept\n"
    pods.delete("reader", "--timeout=60s")

    found = [path for path in machine.directory.glob("node/**/file") if path.read_text() == "kept\n"]
    assert len(found) == 1, "the data is on the disk of the machine"
    pods.kubectl("delete", "pvc", "data", "--timeout=60s")
    until(lambda: not found[0].parent.exists(), 60.0)


def test_empty_dir_lasts_as_long_as_its_pod(pods: PodClient, registry: Registry, machine: RealMachine) -> None:
    pods.run(with_volume("scratch", registry, {"emptyDir": {}}))
    pods.execute("scratch", "echo here > /data/file; kill -9 $(pidof sleep) || true")
    uid = pods.get("scratch")["metadata"]["uid"]
    pods.delete("scratch", "--timeout=60s")
    until(lambda: not (machine.directory / "node" / "pods" / uid).exists(), 60.0)


def test_empty_dir_in_memory_has_a_limit(pods: PodClient, registry: Registry) -> None:
    volume = {"emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}}
    pods.run(with_volume("memory", registry, volume))
    result = pods.kubectl.run("exec", "memory", "--", "dd", "if=/dev/zero", "of=/data/file", "bs=1M", "count=8")
    assert result.code != 0
    assert "No space left on device" in result.err
    assert "tmpfs" in pods.execute("memory", "grep ' /data ' /proc/mounts")


@pytest.mark.parametrize(
    ("kind", "expected"), [("Directory", "directory"), ("File", "file"), ("Socket", "socket file")]
)
def test_host_path_of_the_wrong_type(
    pods: PodClient, registry: Registry, machine: RealMachine, kind: str, expected: str
) -> None:
    absent = machine.directory / "absent"
    pods.apply(with_volume("absent", registry, {"hostPath": {"path": str(absent), "type": kind}}))
    wrong = machine.directory / f"wrong-{kind}"
    if kind == "File":
        wrong.mkdir()
    else:
        wrong.touch()
    pods.apply(with_volume("wrong", registry, {"hostPath": {"path": str(wrong), "type": kind}}))
    failed = "hostPath type check failed"
    unknown = f'unable to determine its type: path "{absent}" does not exist'
    pods.has_event("absent", "FailedMount", f"{failed}, {absent} is not a {expected}, {unknown}")
    found = "Directory" if kind == "File" else "File"
    pods.has_event("wrong", "FailedMount", f"{failed}: {wrong} is not a {expected}, it's a {found}")


def test_host_path(pods: PodClient, registry: Registry, machine: RealMachine) -> None:
    path = machine.directory / "host" / "made"
    pods.run(with_volume("host", registry, {"hostPath": {"path": str(path), "type": "DirectoryOrCreate"}}))
    pods.execute("host", "echo text > /data/file")
    assert (path / "file").read_text() == "text\n"
    pods.delete("host", "--timeout=60s")
    assert (path / "file").exists()


def test_mount_propagation_from_the_host(pods: PodClient, registry: Registry, machine: RealMachine) -> None:
    path = machine.directory / "propagated"
    (path / "inner").mkdir(parents=True)
    volume = {"hostPath": {"path": str(path)}}
    pods.run(with_volume("sees", registry, volume, {"mountPropagation": "HostToContainer"}))
    subprocess.run(["mount", "-t", "tmpfs", "none", path / "inner"], check=True)
    (path / "inner" / "file").write_text("mounted later\n")
    assert pods.execute("sees", "cat /data/inner/file") == "mounted later\n"
    subprocess.run(["umount", path / "inner"], check=True)
    assert pods.kubectl.run("exec", "sees", "--", "cat", "/data/inner/file").code != 0


def test_sub_paths(pods: PodClient, registry: Registry) -> None:
    image, volumes = registry.image("busybox"), [{"name": "volume", "emptyDir": {}}]
    whole = {"volumeMounts": [{"name": "volume", "mountPath": "/all"}]}
    prepare = {"name": "prepare", "image": image, "command": ["sh", "-c", "ln -s / /all/escape"], **whole}
    mounts = [
        {"name": "volume", "mountPath": "/data", "subPath": "inner/deep"},
        {"name": "volume", "mountPath": "/named", "subPathExpr": "$(NAME)"},
    ]
    environment = [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    main = {"volumeMounts": [*mounts, *whole["volumeMounts"]], "env": environment}
    script = "echo a > /data/file; echo b > /named/file; sleep 1000"
    pods.run(pod("parts", image, "sh", "-c", script, container=main, volumes=volumes, initContainers=[prepare]))
    until(lambda: pods.execute("parts", "cat /all/inner/deep/file /all/parts/file") == "a\nb\n")

    escape = {"volumeMounts": [{"name": "volume", "mountPath": "/data", "subPath": "escape/etc"}]}
    pods.apply(pod("escapes", image, "sleep", "1000", container=escape, volumes=volumes, initContainers=[prepare]))
    pods.wait_waiting("escapes", "CreateContainerConfigError")
    pods.has_event("escapes", "Failed", 'failed to prepare subPath for volumeMount "volume" of container "main"')


def test_group_of_volumes(pods: PodClient, registry: Registry) -> None:
    context = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 50000}
    pods.run(with_volume("grouped", registry, {"emptyDir": {}}, securityContext=context))
    assert pods.execute("grouped", "touch /data/file; stat -c %g /data/file; id -G").split()[:1] == ["50000"]
    assert "50000" in pods.execute("grouped", "id -G").split()


def test_logs_and_volumes_of_removed_pods_are_removed(
    pods: PodClient, registry: Registry, machine: RealMachine
) -> None:
    found = pods.run(with_volume("gone", registry, {"emptyDir": {"medium": "Memory"}}))
    uid = found["metadata"]["uid"]
    logs = list(Path(machine.directory / "pod-logs").glob(f"*_{uid}"))
    assert len(logs) == 1
    assert uid in "".join(machine.mounts())
    pods.delete("gone", "--timeout=60s")
    until(lambda: uid not in "".join(machine.mounts()) and not logs[0].exists(), 60.0)
