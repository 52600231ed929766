"""How much a simulated container uses: what its Pod's annotations say, or a plausible part of what it asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.meta.quantity import NANO, QuantityError, parse
from setpoint.node.annotations import PREFIX
from setpoint.node.runtime.interface import Usage
from setpoint.node.runtime.shell.stress import load_of

_CPU_SHARE, _MEMORY_SHARE = 0.5, 0.6
_LEAST_CPU, _LEAST_MEMORY = 2_000_000, 16 << 20


def stated(pod: Mapping[str, Any], container: str, resource: str) -> int | None:
    """What an annotation says, in billionths: for this container (`.../cpu.NAME`), or for each (`.../cpu`)."""
    annotations = pod["metadata"].get("annotations") or {}
    text = annotations.get(f"{PREFIX}{resource}.{container}") or annotations.get(f"{PREFIX}{resource}")
    if not text:
        return None
    try:
        return parse(text).nano
    except QuantityError:
        return None


def usage_of(pod: Mapping[str, Any], container: Mapping[str, Any], seconds: float) -> Usage:
    cpu = stated(pod, container["name"], "cpu")
    memory = stated(pod, container["name"], "memory")
    if (load := load_of(container)) is not None:
        cpu = load.cores * NANO if cpu is None else cpu
        memory = max(load.memory_bytes, _LEAST_MEMORY) * NANO if memory is None else memory
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if cpu is None:
        cpu = max(int(parse(requests.get("cpu", "0")).nano * _CPU_SHARE), _LEAST_CPU)
    if memory is None:
        asked = int(parse(requests.get("memory", "0")).nano // NANO * _MEMORY_SHARE)
        memory = max(asked, _LEAST_MEMORY) * NANO
    if "cpu" in limits:
        cpu = min(cpu, parse(limits["cpu"]).nano)
    return Usage(cpu, memory // NANO, cpu / NANO * max(seconds, 0.0))


def exceeds_its_limit(pod: Mapping[str, Any], container: Mapping[str, Any]) -> bool:
    """More memory than it may have, as an annotation says, or as `stress` is asked for."""
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    if not limit:
        return False
    used = stated(pod, container["name"], "memory")
    if used is None and (load := load_of(container)) is not None:
        used = load.memory_bytes * NANO
    return used is not None and used > parse(limit).nano
