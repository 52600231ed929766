"""`run`, `expose`, `autoscale`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Typed, typed_offline


def test_a_pod_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = typed_offline("run p --image=nginx --port=80 --dry-run=client -o json -- a b", tmp_path)
    pod = json.loads(done.out)
    assert pod["metadata"] == {"name": "p", "creationTimestamp": None, "labels": {"run": "p"}}
    assert pod["spec"]["containers"] == [
        {"name": "p", "image": "nginx", "args": ["a", "b"], "ports": [{"containerPort": 80}], "resources": {}}
    ]


async def test_a_pod_and_its_service(typed: Typed) -> None:
    assert await typed("run p --image=nginx --port=80 --expose") == "pod/p created\nservice/p created\n"
    service = json.loads(await typed("get svc p -o json"))
    assert service["spec"]["selector"] == {"run": "p"}


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("merge", '{"spec":{"hostNetwork":true,"nothing":1}}'),
        ("strategic", '{"spec":{"hostNetwork":true}}'),
        ("json", '[{"op":"add","path":"/spec/hostNetwork","value":true}]'),
    ],
)
async def test_overrides(typed: Typed, kind: str, patch: str) -> None:
    line = f"run p --image=i --dry-run=client -o json --override-type={kind} --overrides='{patch}'"
    spec = json.loads(await typed(line))["spec"]
    assert spec["hostNetwork"] is True and "nothing" not in spec


@pytest.mark.parametrize("image", ["Nginx", "nginx:", "a//b", "nginx@sha256:12", "a b", "-x", "x" * 5000 + ":" * 50])
async def test_invalid_images(typed: Typed, image: str) -> None:
    assert "invalid reference format" in await typed.refused(
        f"run p --image '{image}'".replace("--image '-", "--image='-")
    )


async def test_a_service_for_a_deployment(typed: Typed) -> None:
    await typed("create deployment web --image=i --port=8080")
    assert await typed("expose deployment web --port=80 --target-port=8080") == "service/web exposed\n"
    spec = json.loads(await typed("get svc web -o json"))["spec"]
    assert spec["selector"] == {"app": "web"}
    assert spec["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 8080}]
    assert await typed.refused("expose cm kube-root-ca.crt --port=1") != ""


async def test_an_autoscaler(typed: Typed) -> None:
    await typed("create deployment web --image=i")
    line = "autoscale deploy web --min=2 --max=9 --cpu=70% --memory=200 --dry-run=client -o json"
    spec = json.loads(await typed(line))["spec"]
    assert [one["resource"] for one in spec["metrics"]] == [
        {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
        {"name": "memory", "target": {"type": "AverageValue", "averageValue": "200Mi"}},
    ]
    assert await typed("autoscale deploy web --max=3") == "horizontalpodautoscaler.autoscaling/web autoscaled\n"
    assert "invalid percentage value: x" in await typed.refused("autoscale deploy web --max=3 --cpu=x%")
