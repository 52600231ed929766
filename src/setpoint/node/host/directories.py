"""The directories of a real node, in the layout that the kubelet uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_ROOT = Path("/var/lib/setpoint/node")
DEFAULT_LOGS = Path("/var/log/pods")
DEFAULT_RUN = Path("/run/setpoint/node")


@dataclass(frozen=True, slots=True)
class NodeDirectories:
    """The places of a node's files. All files that outlive the agent are below `root`, `logs` and `run`."""

    root: Path = DEFAULT_ROOT
    """State that outlives a reboot."""
    logs: Path = DEFAULT_LOGS
    """Logs of containers: `<namespace>_<name>_<uid>/<container>/<attempt>.log`."""
    run: Path = DEFAULT_RUN
    """Sockets and process ids, which do not outlive a reboot."""

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def pki(self) -> Path:
        """Certificates and keys of the node."""
        return self.root / "pki"

    @property
    def containerd(self) -> Path:
        """The data of the agent's own containerd."""
        return self.root / "containerd"

    @property
    def cni(self) -> Path:
        """The network configuration for the container runtime."""
        return self.root / "cni"

    @property
    def local_volumes(self) -> Path:
        """The directories of dynamically provisioned local volumes, by the name of the PersistentVolume."""
        return self.root / "local-volumes"

    def pod(self, uid: str) -> Path:
        return self.pods / uid

    def volume(self, uid: str, plugin: str, name: str) -> Path:
        """Return the directory of a volume. `plugin` is the kubelet's name, such as `kubernetes.io~empty-dir`."""
        return self.pod(uid) / "volumes" / plugin / name

    def sub_paths(self, uid: str) -> Path:
        return self.pod(uid) / "volume-subpaths"

    def container(self, uid: str, name: str) -> Path:
        """Return the directory of the agent's files of a container, such as its termination message."""
        return self.pod(uid) / "containers" / name

    def pod_logs(self, namespace: str, name: str, uid: str) -> Path:
        return self.logs / f"{namespace}_{name}_{uid}"
