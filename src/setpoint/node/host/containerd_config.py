"""Writes the configuration of the agent's own containerd: its main file, and one for each registry with a mirror."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from setpoint.node.host.directories import NodeDirectories

Version = tuple[int, int, int]

DEFAULT_CNI_DIRECTORIES = ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni")
_VERSION = re.compile(r"\bv?([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")
_REGISTRY_HOST = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?|\[[0-9A-Fa-f:]+\](?::[0-9]{1,5})?"
)
_ALL_REGISTRIES = "_default"
_UNUSED_PLUGINS = (
    # This plugin writes to /opt, outside of the directories of the node.
    "io.containerd.internal.v1.opt",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.snapshotter.v1.zfs",
)


class ContainerdConfigError(ValueError):
    """A setting of containerd is invalid."""


@dataclass(frozen=True, slots=True)
class ContainerdSettings:
    """The settings of the agent's own containerd."""

    sandbox_image: str
    cni_plugins: tuple[str, ...] = DEFAULT_CNI_DIRECTORIES
    """Directories with CNI plugins; containerd before 2.0 uses the first one that exists."""
    registry_mirrors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """URLs by the host of a registry, in the order in which they are tried before the registry itself; `*` stands for
    all registries."""
    can_lower_oom_scores: bool = True
    """Whether the agent has CAP_SYS_RESOURCE, without which OOM scores can only be raised."""
    snapshotter: str = "overlayfs"
    cni_conf_dir: str = ""
    """The directory of the network configuration; empty means that of the agent."""


def parse_version(text: str) -> Version:
    """Return the version in the output of `containerd --version`. Raise ContainerdConfigError."""
    found = _VERSION.search(text)
    if found is None:
        raise ContainerdConfigError(f"no version in {text[:100]!r}")
    return int(found[1]), int(found[2]), int(found[3])


def containerd_socket(directories: NodeDirectories) -> Path:
    return directories.run / "containerd.sock"


def registries_directory(directories: NodeDirectories) -> Path:
    return directories.containerd / "certs.d"


def config_text(version: Version, directories: NodeDirectories, settings: ContainerdSettings) -> str:
    """Return the main configuration file for a version of containerd."""
    head = [
        f"version = {3 if version >= (2, 0, 0) else 2}",
        f"root = {_text(directories.containerd / 'root')}",
        f"state = {_text(directories.run / 'containerd')}",
        f"disabled_plugins = {_list(_UNUSED_PLUGINS)}",
        f"oom_score = {-999 if settings.can_lower_oom_scores else 0}",
        "[grpc]",
        f"  address = {_text(containerd_socket(directories))}",
    ]
    body = _version_3 if version >= (2, 0, 0) else _version_2
    return "\n".join([*head, *body(directories, settings), ""])


def _version_2(directories: NodeDirectories, settings: ContainerdSettings) -> list[str]:
    plugin = 'plugins."io.containerd.grpc.v1.cri"'
    found = next((each for each in settings.cni_plugins if Path(each).is_dir()), settings.cni_plugins[0])
    return [
        f"[{plugin}]",
        f"  sandbox_image = {_text(settings.sandbox_image)}",
        *_streaming(),
        *_behaviour(settings),
        f"  [{plugin}.cni]",
        f"    bin_dir = {_text(found)}",
        f"    conf_dir = {_text(settings.cni_conf_dir or directories.cni)}",
        f"  [{plugin}.containerd]",
        f"    snapshotter = {_text(settings.snapshotter)}",
        '    default_runtime_name = "runc"',
        *_runc(f"{plugin}.containerd"),
        f"  [{plugin}.registry]",
        f"    config_path = {_text(registries_directory(directories))}",
    ]


def _version_3(directories: NodeDirectories, settings: ContainerdSettings) -> list[str]:
    images, runtime = 'plugins."io.containerd.cri.v1.images"', 'plugins."io.containerd.cri.v1.runtime"'
    return [
        f"[{images}]",
        f"  snapshotter = {_text(settings.snapshotter)}",
        f"  [{images}.pinned_images]",
        f"    sandbox = {_text(settings.sandbox_image)}",
        f"  [{images}.registry]",
        f"    config_path = {_text(registries_directory(directories))}",
        f"[{runtime}]",
        *_behaviour(settings),
        f"  [{runtime}.cni]",
        f"    bin_dirs = {_list(settings.cni_plugins)}",
        f"    conf_dir = {_text(settings.cni_conf_dir or directories.cni)}",
        f"  [{runtime}.containerd]",
        '    default_runtime_name = "runc"',
        *_runc(f"{runtime}.containerd"),
        '[plugins."io.containerd.grpc.v1.cri"]',
        *_streaming(),
        # Its socket has a fixed path, which another containerd of the machine may use.
        '[plugins."io.containerd.nri.v1.nri"]',
        "  disable = true",
    ]


def _behaviour(settings: ContainerdSettings) -> list[str]:
    return [
        f"  restrict_oom_score_adj = {'false' if settings.can_lower_oom_scores else 'true'}",
        # Several containerds on one machine must not share a directory of network namespaces.
        "  netns_mounts_under_state_dir = true",
        "  enable_unprivileged_ports = true",
        "  enable_unprivileged_icmp = true",
    ]


def _streaming() -> list[str]:
    return ['  stream_server_address = "127.0.0.1"', '  stream_server_port = "0"']


def _runc(parent: str) -> list[str]:
    return [
        f"    [{parent}.runtimes.runc]",
        '      runtime_type = "io.containerd.runc.v2"',
        f"      [{parent}.runtimes.runc.options]",
        "        SystemdCgroup = false",
    ]


def parse_mirrors(options: Sequence[str]) -> dict[str, list[str]]:
    """Parse `HOST=URL` options; a host may have several URLs. Raise ContainerdConfigError."""
    mirrors: dict[str, list[str]] = {}
    for option in options:
        host, _, url = option.partition("=")
        if not url:
            raise ContainerdConfigError(f"registry mirror {option!r}: must be HOST=URL")
        if host != "*" and not _REGISTRY_HOST.fullmatch(host):
            raise ContainerdConfigError(f"registry mirror {option!r}: {host!r} is not a host, a host with port, or *")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ContainerdConfigError(f"registry mirror {option!r}: {url!r} is not an http or https URL")
        mirrors.setdefault(host, []).append(url)
    return mirrors


def mirror_files(mirrors: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the content of the files for registries by path, relative to the directory of registries."""
    files = {}
    for host, urls in mirrors.items():
        lines = []
        for url in urls:
            lines += [f"[host.{_text(url)}]", '  capabilities = ["pull", "resolve"]']
            if urlsplit(url).path.strip("/"):
                lines.append("  override_path = true")
        files[f"{_ALL_REGISTRIES if host == '*' else host}/hosts.toml"] = "\n".join([*lines, ""])
    return files


def _text(value: str | Path) -> str:
    # A basic string of TOML has the escapes of JSON.
    return json.dumps(str(value))


def _list(values: Sequence[str]) -> str:
    return json.dumps(list(values))
