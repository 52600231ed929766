"""The simulated behaviour of containers: whether they complete, how they react to SIGTERM, what they use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from setpoint.meta.objects import Obj
from setpoint.meta.quantity import NANO, QuantityError, parse
from setpoint.node.runtime.containers import KILLED, TERMINATED
from setpoint.node.runtime.interface import Usage
from setpoint.node.runtime.shell.program_names import (
    AGNHOST_PROGRAMS,
    COMPLETING_PROGRAMS,
    NOT_SIMULATED,
    SERVERS,
    is_shell,
)
from setpoint.node.runtime.shell.stress_options import load_of
from setpoint.node.simulation_annotations import PREFIX

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

HELLO_WORLD_OUTPUT = """
Hello from Docker!
This message shows that your installation appears to be working correctly.
"""

_SILENT_LOOP = (
    r"\s*(?:while\s+(?:true|:|\[\s*1\s*\])|while\s+sleep\s+[0-9.]+[smhd]?)\s*;?\s*do\s+"
    r"(?:(?:sleep\s+[0-9.]+[smhd]?|:|true)\s*;?\s*)*done\s*;?\s*"
)
_ENDLESS_SLEEP = r"\s*(?:exec\s+)?(?:sleep\s+inf(?:inity)?|tail\s+-[fF]\s+/dev/null)\s*;?\s*"
_CPU_SHARE, _MEMORY_SHARE = 0.5, 0.6
_MIN_CPU, _MIN_MEMORY = 2_000_000, 16 << 20


def runs_forever(argv: Sequence[str]) -> bool:
    """Return whether the command runs without output until it is stopped: a server, or a loop that only sleeps."""
    name = argv[0].rpartition("/")[2]
    if is_shell(argv[0]):
        if len(argv) >= 3 and re.fullmatch("-[a-z]*c", argv[1]):
            text = argv[2]
            return any(re.fullmatch(pattern, text) for pattern in (_SILENT_LOOP, _ENDLESS_SLEEP))
        return False
    if name in ("agnhost", "agnhost-2"):
        return len(argv) < 2 or argv[1] not in AGNHOST_PROGRAMS
    known = is_known(name) or name in COMPLETING_PROGRAMS or name in NOT_SIMULATED
    return not known and "/" not in argv[0].lstrip("/")


def runs_to_completion(pod: Pod, name: str) -> bool:
    """Return whether a program that is not simulated completes instead of running until it is stopped.

    That is the case in init containers that are not sidecars, and in Pods of controllers that run to completion: those
    of Jobs and of custom resources that are not restarted when they end."""
    for container in pod["spec"].get("initContainers") or ():
        if container["name"] == name:
            return bool(container.get("restartPolicy") != "Always")
    if pod["spec"].get("restartPolicy", "Always") == "Always":
        return False
    return any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ())


def is_unknown_program(argv: Sequence[str] | None) -> bool:
    """Return whether `runs_forever` holds only because the program is not simulated."""
    if argv is None:
        return True
    name = argv[0].rpartition("/")[2]
    return not (is_shell(argv[0]) or name in ("agnhost", "agnhost-2"))


def startup_output(argv: Sequence[str]) -> str:
    """Return what a program that runs forever writes when it starts."""
    return "Paused\n" if [each.rpartition("/")[2] for each in argv] == ["agnhost", "pause"] else ""


def is_known(program: str) -> bool:
    """Return whether a program of this name is simulated."""
    # Imported here because containers that run servers need no interpreter: a cluster without others starts sooner.
    from setpoint.node.runtime.shell.interpreter import exists

    return exists(program) or program == "hello-world"


def is_missing(program: str) -> bool:
    """Return whether an image whose content is fully known lacks the program. A path may be on a volume, whose content
    depends on other programs."""
    return "/" not in program and not is_known(program) and program not in (*SERVERS, *NOT_SIMULATED)


def sigterm_reaction(
    container: Mapping[str, Any], spec: Mapping[str, Any], interpreted: bool, annotation: str
) -> tuple[float | None, int]:
    """Return the seconds for which a container runs after SIGTERM (None: until it is killed), and its exit code then.

    Servers exit at once with code 0. A shell or a `sleep` that is the first process of its container ignores signals
    without a handler, as Linux has it; in a shared process namespace it is terminated. `annotation` is the value of the
    Pod's annotation: `ignore`, seconds, or `seconds:code`."""
    if annotation == "ignore":
        return None, KILLED
    match = re.fullmatch(r"([0-9.]+)s?(?::([0-9]{1,3}))?", annotation)
    if match is not None:
        return float(match[1]), int(match[2] or 0)
    first = [*(container.get("command") or []), *(container.get("args") or [])]
    if not interpreted and not (first and _is_program(first[0])):
        return 0.0, 0
    return (0.0, TERMINATED) if spec.get("shareProcessNamespace") or spec.get("hostPID") else (None, KILLED)


def _is_program(program: str) -> bool:
    """Return whether the program is a shell, or one that the shell runs."""
    if is_shell(program):
        return True
    # Imported here for the reason in `is_known`.
    from setpoint.node.runtime.shell.programs import PROGRAMS

    return program.rpartition("/")[2] in PROGRAMS


def _annotated_usage(pod: Pod, container: str, resource: str) -> int | None:
    """Return the annotated usage in billionths, for this container (`.../cpu.NAME`) or for each (`.../cpu`); None
    without one."""
    annotations = pod["metadata"].get("annotations") or {}
    text = annotations.get(f"{PREFIX}{resource}.{container}") or annotations.get(f"{PREFIX}{resource}")
    if not text:
        return None
    try:
        return parse(text).nano
    except QuantityError:
        return None


def usage_of(pod: Pod, container: Mapping[str, Any], seconds: float) -> Usage:
    cpu = _annotated_usage(pod, container["name"], "cpu")
    memory = _annotated_usage(pod, container["name"], "memory")
    if (load := load_of(container)) is not None:
        cpu = load.cores * NANO if cpu is None else cpu
        memory = max(load.memory_bytes, _MIN_MEMORY) * NANO if memory is None else memory
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if cpu is None:
        cpu = max(int(parse(requests.get("cpu", "0")).nano * _CPU_SHARE), _MIN_CPU)
    if memory is None:
        share_of_request = int(parse(requests.get("memory", "0")).nano // NANO * _MEMORY_SHARE)
        memory = max(share_of_request, _MIN_MEMORY) * NANO
    if "cpu" in limits:
        cpu = min(cpu, parse(limits["cpu"]).nano)
    return Usage(cpu, memory // NANO, cpu / NANO * max(seconds, 0.0))


def exceeds_memory_limit(pod: Pod, container: Mapping[str, Any]) -> bool:
    """Return whether the annotated memory usage, or that of a `stress` command, exceeds the container's limit."""
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    if not limit:
        return False
    used = _annotated_usage(pod, container["name"], "memory")
    if used is None and (load := load_of(container)) is not None:
        used = load.memory_bytes * NANO
    return used is not None and used > parse(limit).nano


def linux_user(container: Mapping[str, Any], spec: Mapping[str, Any]) -> Obj:
    """Return the user and the groups of a container's first process, as container statuses show them."""
    own, pod = container.get("securityContext") or {}, spec.get("securityContext") or {}
    uid = own.get("runAsUser", pod.get("runAsUser", 0))
    gid = own.get("runAsGroup", pod.get("runAsGroup", 0))
    groups = [gid, *(pod.get("supplementalGroups") or ()), *([pod["fsGroup"]] if "fsGroup" in pod else [])]
    return _linux_user(uid, gid, tuple(dict.fromkeys(groups)))


@lru_cache(maxsize=256)
def _linux_user(uid: int, gid: int, groups: tuple[int, ...]) -> Obj:
    """Return the same object for containers with equal users; nothing changes it."""
    return {"uid": uid, "gid": gid, "supplementalGroups": [*groups]}
