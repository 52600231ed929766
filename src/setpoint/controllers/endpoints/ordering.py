"""The order of ports and subsets.

Upstream sorts them by a hash of the printed Go values. Only the stability of the order matters, but controllers of two
versions or implementations must agree on it, or each would revert what the other wrote. Values are therefore printed as
upstream does and hashed alike (FNV-1a, 128 bits).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

Obj = dict[str, Any]

_OFFSET, _PRIME, _MASK = 0x6C62272E07BB014262B821756295C58D, 0x0000000001000000000000000000013B, (1 << 128) - 1


def fnv128a(text: str) -> bytes:
    value = _OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _PRIME) & _MASK
    return value.to_bytes(16, "big")


@lru_cache(4096)
def in_slices(name: str, protocol: str, number: int, application: str | None) -> bytes:
    """Return the sort key of a port of a slice."""
    return fnv128a(
        f"(v1.EndpointPort){{Name:(*string){name} Protocol:(*v1.Protocol){protocol} Port:(*int32){number} "
        f"AppProtocol:{_pointer(application)}}}"
    )


def by_hash(port: Mapping[str, Any]) -> bytes:
    return fnv128a("(v1.EndpointPort)" + _port(port))


def subset_by_hash(subset: Mapping[str, Any]) -> bytes:
    printed = " ".join(
        (
            f"Addresses:{_many('v1.EndpointAddress', subset.get('addresses'), _address)}",
            f"NotReadyAddresses:{_many('v1.EndpointAddress', subset.get('notReadyAddresses'), _address)}",
            f"Ports:{_many('v1.EndpointPort', subset.get('ports'), _port)}",
        )
    )
    return fnv128a(f"(v1.EndpointSubset){{{printed}}}")


def _many(kind: str, values: Iterable[Obj] | None, one: Any) -> str:
    printed = "[" + " ".join(one(value) for value in values) + "]" if values else "<nil>"
    return f"([]{kind}){printed}"


def _port(port: Mapping[str, Any]) -> str:
    return (
        f"{{Name:(string){port.get('name') or ''} Port:(int32){port['port']} "
        f"Protocol:(v1.Protocol){port.get('protocol') or ''} AppProtocol:{_pointer(port.get('appProtocol'))}}}"
    )


def _address(address: Mapping[str, Any]) -> str:
    return (
        f"{{IP:(string){address['ip']} Hostname:(string){address.get('hostname') or ''} "
        f"NodeName:{_pointer(address.get('nodeName'))} "
        f"TargetRef:(*v1.ObjectReference){_target(address.get('targetRef'))}}}"
    )


def _target(target: Mapping[str, Any] | None) -> str:
    if target is None:
        return "<nil>"
    fields = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    names = ("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath")
    printed = (
        f"{name}:({'types.UID' if name == 'UID' else 'string'}){target.get(field) or ''}"
        for name, field in zip(names, fields, strict=True)
    )
    return "{" + " ".join(printed) + "}"


def _pointer(text: str | None) -> str:
    return "(*string)" + ("<nil>" if text is None else text)
