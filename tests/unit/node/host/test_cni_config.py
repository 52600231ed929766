"""The network configuration of a node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from setpoint.node.host.cni_config import CniConfigError, cni_config, remove_cni_config, write_cni_config
from setpoint.node.host.directories import NodeDirectories


def test_two_families() -> None:
    found = cni_config(["10.244.1.0/24", "fd00:1::/64"], Path("/a"), 1450)
    (pair,) = found["plugins"]
    assert (found["cniVersion"], found["name"]) == ("1.0.0", "setpoint")
    assert (pair["type"], pair["mtu"]) == ("ptp", 1450)
    assert pair["ipam"] == {
        "type": "host-local",
        "dataDir": "/a",
        "ranges": [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:1::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
    }
    assert "mtu" not in cni_config(["10.244.1.0/24"], Path("/a"))["plugins"][0]


@pytest.mark.parametrize("cidrs", [[], ["10.0.0.0/24", "10.0.1.0/24"], ["10.0.0.1/24"], ["x"]])
def test_invalid_ranges(cidrs: list[str]) -> None:
    with pytest.raises(CniConfigError):
        cni_config(cidrs, Path("/a"))


def test_the_file_is_replaced_and_removed(tmp_path: Path) -> None:
    directories = NodeDirectories(tmp_path / "root", tmp_path / "logs", tmp_path / "run")
    remove_cni_config(directories)
    assert write_cni_config(directories, ["10.244.1.0/24"])
    assert not write_cni_config(directories, ["10.244.1.0/24"])
    assert write_cni_config(directories, ["10.244.2.0/24"])
    (path,) = directories.cni.iterdir()
    assert path.suffix == ".conflist"
    assert json.loads(path.read_text())["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24"}]]
    other = directories.cni / "00-other.conflist"
    other.write_text("{}")
    remove_cni_config(directories)
    assert [*directories.cni.iterdir()] == [other]
