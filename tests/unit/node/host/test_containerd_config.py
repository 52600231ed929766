"""The configuration files of containerd."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from setpoint.node.host.containerd_config import (
    ContainerdConfigError,
    ContainerdSettings,
    config_text,
    mirror_files,
    parse_mirrors,
    parse_version,
)
from setpoint.node.host.directories import NodeDirectories

PAUSE = "localhost/setpoint/pause:1"


def config(version: tuple[int, int, int], root: Path, **settings: Any) -> Any:
    directories = NodeDirectories(root / "root", root / "logs", root / "run")
    return tomllib.loads(config_text(version, directories, ContainerdSettings(PAUSE, **settings)))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", (1, 6, 20)),
        ("containerd github.com/containerd/containerd/v2 v2.3.4 abc", (2, 3, 4)),
        ("containerd containerd.io 1.7.27 05044ec", (1, 7, 27)),
    ],
)
def test_versions(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


def test_an_output_without_a_version() -> None:
    with pytest.raises(ContainerdConfigError):
        parse_version("containerd of my own")


def test_version_2_of_the_file(tmp_path: Path) -> None:
    root = tmp_path / 'with "quotes"'
    (tmp_path / "plugins").mkdir()
    plugins = (str(tmp_path / "missing"), str(tmp_path / "plugins"))
    found = config((1, 7, 2), root, cni_plugins=plugins, can_lower_oom_scores=False)
    assert (found["version"], found["oom_score"]) == (2, 0)
    assert found["root"] == str(root / "root/containerd/root")
    assert found["state"] == str(root / "run/containerd")
    assert found["grpc"]["address"] == str(root / "run/containerd.sock")
    assert "io.containerd.internal.v1.opt" in found["disabled_plugins"]
    cri = found["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == PAUSE
    assert cri["restrict_oom_score_adj"] is True
    assert (cri["stream_server_address"], cri["stream_server_port"]) == ("127.0.0.1", "0")
    assert cri["cni"] == {"bin_dir": plugins[1], "conf_dir": str(root / "root/cni")}
    assert cri["registry"] == {"config_path": str(root / "root/containerd/certs.d")}
    assert cri["containerd"]["runtimes"]["runc"]["options"] == {"SystemdCgroup": False}
    assert cri["netns_mounts_under_state_dir"] is True


def test_version_3_of_the_file(tmp_path: Path) -> None:
    found = config((2, 0, 0), tmp_path)
    assert (found["version"], found["oom_score"]) == (3, -999)
    plugins = found["plugins"]
    images, runtime = plugins["io.containerd.cri.v1.images"], plugins["io.containerd.cri.v1.runtime"]
    assert images["pinned_images"] == {"sandbox": PAUSE}
    assert images["registry"] == {"config_path": str(tmp_path / "root/containerd/certs.d")}
    assert runtime["cni"]["bin_dirs"] == ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"]
    assert runtime["restrict_oom_score_adj"] is False
    assert runtime["containerd"]["default_runtime_name"] == "runc"
    assert plugins["io.containerd.grpc.v1.cri"]["stream_server_port"] == "0"
    assert plugins["io.containerd.nri.v1.nri"] == {"disable": True}


def test_mirrors() -> None:
    mirrors = parse_mirrors(
        ["docker.io=https://m.example", "docker.io=http://10.0.0.1:5000/sub", "*=http://[::1]:5000"]
    )
    files = {name: tomllib.loads(text) for name, text in mirror_files(mirrors).items()}
    capabilities = ["pull", "resolve"]
    assert files == {
        "docker.io/hosts.toml": {
            "host": {
                "https://m.example": {"capabilities": capabilities},
                "http://10.0.0.1:5000/sub": {"capabilities": capabilities, "override_path": True},
            }
        },
        "_default/hosts.toml": {"host": {"http://[::1]:5000": {"capabilities": capabilities}}},
    }


@pytest.mark.parametrize(
    "option",
    ["docker.io", "=http://x", "docker.io=", "a/b=http://x", "..=http://x", "x=ftp://y", "x=http://", "x=http://y?z"],
)
def test_invalid_mirrors(option: str) -> None:
    with pytest.raises(ContainerdConfigError, match="registry mirror"):
        parse_mirrors([option])
