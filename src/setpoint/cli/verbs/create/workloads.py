"""Build the Pod templates of generated workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Obj = dict[str, Any]


def container(name: str, image: str, command: Sequence[str] = (), port: int = -1) -> Obj:
    made: Obj = {"name": name, "image": image}
    if command:
        made["command"] = list(command)
    if port >= 0:
        made["ports"] = [{"containerPort": port}]
    made["resources"] = {}
    return made


def template(containers: Sequence[Obj], restart: str = "", labels: Mapping[str, str] | None = None) -> Obj:
    meta: Obj = {"creationTimestamp": None}
    if labels:
        meta["labels"] = dict(labels)
    spec: Obj = {"containers": list(containers)}
    if restart:
        spec["restartPolicy"] = restart
    return {"metadata": meta, "spec": spec}
