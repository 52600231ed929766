"""The configuration of containers in CRI's terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.meta.objects import Obj, ObjView
from setpoint.node.environment import ContainerConfigError, expand
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.pod_settings import IdRange, PodConfigSettings
from setpoint.node.host.resources import container_resources
from setpoint.node.host.runtime_labels import container_annotations, container_labels
from setpoint.node.host.security import ImageUser, container_security_context, id_mapping

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.runtime.interface import ContainerConfig

HOSTS_PATH = "/etc/hosts"


def hosts_path(directories: NodeDirectories, uid: str) -> Path:
    """Return the file that is mounted at /etc/hosts in the containers of a Pod; `hosts_file` returns its content."""
    return directories.pod(uid) / "etc-hosts"


def termination_log_path(directories: NodeDirectories, uid: str, name: str, attempt: int) -> Path:
    """Return the file that is mounted at the termination message path of one run of a container. It must exist, be
    empty and have the mode 0666 when the container is created."""
    return directories.container(uid, name) / f"{attempt}.termination-log"


def log_path(name: str, attempt: int) -> str:
    """Return the log file of one run of a container, relative to the log directory of its Pod."""
    return f"{name}/{attempt}.log"


def container_config(
    config: ContainerConfig,
    mounts: Iterable[ObjView],
    environment: Mapping[str, str],
    settings: PodConfigSettings,
    *,
    image_user: ImageUser,
    pod_ips: Sequence[str],
    image_ref: str = "",
    target_id: str = "",
    devices: Iterable[ObjView] = (),
    extra_groups: Sequence[int] = (),
    id_range: IdRange | None = None,
) -> Obj:
    """Return CRI's ContainerConfig.

    `mounts` are those of the container's volumes, `image_user` is the user that the image demands, `image_ref` the
    reference by which the runtime finds the image if that is not its id. The other parameters are those of
    `container_security_context`. Raise ContainerConfigError, with the message of the kubelet, if the container cannot
    be created.
    """
    pod, spec = config.pod, config.spec
    security = container_security_context(
        pod, spec, settings, image_user, target_id=target_id, extra_groups=extra_groups, id_range=id_range
    )
    return {
        "metadata": {"name": config.name, "attempt": config.attempt},
        "image": {
            "image": image_ref or config.image_id or config.image,
            "user_specified_image": spec.get("image") or config.image,
        },
        "command": _expanded("command", spec, environment),
        "args": _expanded("args", spec, environment),
        "working_dir": spec.get("workingDir") or "",
        "envs": [_variable(name, value) for name, value in environment.items()],
        "mounts": _mounts(
            config, mounts, settings, pod_ips, id_range if pod["spec"].get("hostUsers") is False else None
        ),
        "devices": [dict(device) for device in devices],
        "labels": container_labels(pod, config.name, settings.node_name),
        "annotations": container_annotations(pod, spec, config.attempt),
        "log_path": log_path(config.name, config.attempt),
        "stdin": bool(spec.get("stdin")),
        "stdin_once": bool(spec.get("stdinOnce")),
        "tty": bool(spec.get("tty")),
        "linux": {"resources": container_resources(pod, spec, settings), "security_context": security},
    }


def mounts_hosts_file(pod: Pod, spec: ObjView, pod_ips: Sequence[str]) -> bool:
    """Return whether a container sees the Pod's own file /etc/hosts, rather than that of its image or a volume."""
    if not pod_ips and not pod["spec"].get("hostNetwork"):
        return False
    return all(mount["mountPath"] != HOSTS_PATH for mount in spec.get("volumeMounts") or ())


def _expanded(field: str, spec: ObjView, environment: Mapping[str, str]) -> list[str]:
    found = [expand(text, environment) for text in spec.get(field) or ()]
    for text in found:
        try:
            text.encode()
        except UnicodeEncodeError:
            # A variable may contain any bytes, an argument only text.
            raise ContainerConfigError(f"{field} of container {spec['name']} contains invalid UTF-8") from None
    return found


def _variable(name: str, value: str) -> Obj:
    return {"key": name, "value": value.encode(errors="surrogateescape")}


def _mounts(
    config: ContainerConfig,
    volumes: Iterable[ObjView],
    settings: PodConfigSettings,
    pod_ips: Sequence[str],
    id_range: IdRange | None,
) -> list[Obj]:
    found = [dict(mount) for mount in volumes]
    uid, spec = config.pod["metadata"]["uid"], config.spec
    if mounts_hosts_file(config.pod, spec, pod_ips):
        found.append(_file_mount(HOSTS_PATH, hosts_path(settings.directories, uid), settings))
    message_path = spec.get("terminationMessagePath") or ""
    if message_path:
        path = termination_log_path(settings.directories, uid, config.name, config.attempt)
        found.append(_file_mount("/" + message_path.lstrip("/"), path, settings))
    if id_range is not None:
        mappings = [id_mapping(id_range)]
        found = [mount | {"uidMappings": mappings, "gidMappings": mappings} for mount in found]
    return found


def _file_mount(container_path: str, host_path: Path, settings: PodConfigSettings) -> Obj:
    return {"container_path": container_path, "host_path": str(host_path), "selinux_relabel": settings.selinux}
