"""Parse the ports of `port-forward`: `8080`, `8080:80`, `:80`, port names, and the ports of a Service."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, NamedTuple

from setpoint.cli.failures import Failed
from setpoint.meta.goformat import quote

Obj = dict[str, Any]
_MOST = 65535


class Pair(NamedTuple):
    local: int
    """The local port; 0 means any free port."""
    remote: int


def pairs(words: list[str], owner: Obj, pod: Obj) -> list[Pair]:
    """Return the port pairs; `owner` is the named Service or Pod. Raise Failed."""
    service = owner if owner.get("kind") == "Service" else None
    return [_pair(_resolved(word, service, pod)) for word in words]


def addresses(given: list[str]) -> list[tuple[str, bool]]:
    """Return each address with whether it is required; of the addresses of `localhost` one is enough."""
    found: dict[str, bool] = {}
    for word in given:
        if word == "localhost":
            for one in ("127.0.0.1", "::1"):
                found.setdefault(one, False)
            continue
        try:
            ip_address(word)
        except ValueError:
            raise Failed(f"{word} is not a valid IP") from None
        found[word] = True
    if not found:
        raise Failed("you must specify at least 1 address")
    return sorted(found.items())


def _split(word: str) -> tuple[str, str]:
    local, colon, remote = word.partition(":")
    if ":" in remote:
        raise Failed(f"invalid port format '{word}'")
    return (local, remote) if colon else (local, local)


def _resolved(word: str, service: Obj | None, pod: Obj) -> str:
    local, remote = _split(word)
    if service is None:
        if not remote:
            raise Failed("remote port cannot be empty")
        wanted = _number(remote)
        if wanted is None:
            wanted = _of_pod(pod, remote)
        found = str(wanted) if _number(remote) is None else remote
        declared = [p for c in pod["spec"]["containers"] for p in c.get("ports") or ()]
        _no_udp([(p["containerPort"], p.get("protocol", "TCP")) for p in declared], wanted, remote)
        return f"{local}:{found}" if local != remote else found
    name = service["metadata"]["name"]
    declared = (service.get("spec") or {}).get("ports") or []
    wanted = _number(remote)
    if wanted is None:
        wanted = next((p["port"] for p in declared if p.get("name") == remote), None)
        if wanted is None:
            raise Failed(f"Service '{name}' does not have a named port '{remote}'")
        if local == remote:
            local = str(wanted)
    _no_udp([(p["port"], p.get("protocol", "TCP")) for p in declared], wanted, remote)
    port = next((p for p in declared if p["port"] == wanted), None)
    if port is None:
        raise Failed(f"Service {name} does not have a service port {wanted}")
    target = port.get("targetPort") or wanted
    if service["spec"].get("clusterIP") == "None":
        target = wanted
    found = str(target if isinstance(target, int) else _of_pod(pod, target))
    return f"{local}:{found}" if local != found else found


def _no_udp(declared: list[tuple[int, str]], wanted: int, word: str) -> None:
    protocols = {protocol for port, protocol in declared if port == wanted}
    if protocols == {"UDP"}:
        raise Failed(f"UDP protocol is not supported for {word}")


def _of_pod(pod: Obj, name: str) -> int:
    for part in ("containers", "initContainers"):
        for container in pod["spec"].get(part) or ():
            for port in container.get("ports") or ():
                if port.get("name") == name:
                    return int(port["containerPort"])
    raise Failed(f"Pod '{pod['metadata']['name']}' does not have a named port '{name}'")


def _number(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def _pair(word: str) -> Pair:
    local, remote = _split(word)
    pair = Pair(_unsigned(local or "0", "local"), _unsigned(remote, "remote"))
    if not pair.remote:
        raise Failed("remote port must be > 0")
    return pair


def _unsigned(text: str, which: str) -> int:
    problem = ""
    if not (text.isascii() and text.isdigit()):
        problem = "invalid syntax"
    elif len(text) > 20 or int(text) > _MOST:
        problem = "value out of range"
    if problem:
        raise Failed(f"error parsing {which} port '{text}': strconv.ParseUint: parsing {quote(text)}: {problem}")
    return int(text)
