"""Evaluates the rules of an `Fragment` for the first packet of a connection. It knows the expressions that the rules for
policies use, and refuses all others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from policy_oracle import Packet

from setpoint.node.host.network.ruleset import Fragment

_WORD = re.compile(r"\{[^}]*\}|\S+")


class Interpreter:
    def __init__(self, state: Fragment) -> None:
        self._chains = {name: [_WORD.findall(rule) for rule in chain.rules] for name, chain in state.chains.items()}
        self._sets = {name: _elements(each.elements) for name, each in state.sets.items()}

    def accepts(self, packet: Packet, base: str) -> bool:
        return self._run(base, packet) in ("accept", "end")

    def _run(self, chain: str, packet: Packet) -> str:
        for rule in self._chains[chain]:
            verdict = self._rule(rule, packet)
            if verdict in ("accept", "drop"):
                return verdict
            if verdict == "return":
                return "end"
            if verdict.startswith("jump "):
                inner = self._run(verdict.removeprefix("jump "), packet)
                if inner != "end":
                    return inner
        return "end"

    def _rule(self, words: list[str], packet: Packet) -> str:
        """Return the verdict of a rule; empty if it does not match."""
        at = 0
        while at < len(words):
            if words[at] in ("accept", "drop", "return"):
                assert at == len(words) - 1, words
                return words[at]
            if words[at] == "ct":
                assert words[at : at + 3] in (["ct", "direction", "reply"], ["ct", "state", "related"]), words
                return ""
            key, at = self._expression(words, at, packet)
            if key is None:
                return ""
            if words[at] == "vmap":
                return self._sets[words[at + 1].removeprefix("@")].get(key, "")
            negated = words[at] == "!="
            at += negated
            if self._is_in(key, words[at]) == negated:
                return ""
            at += 1
        raise AssertionError(f"a rule without a verdict: {words}")

    def _expression(self, words: list[str], at: int, packet: Packet) -> tuple[str | None, int]:
        """Return the value of an expression, or None if the packet does not have it, and the position behind it."""
        values: list[str | None] = []
        while True:
            values.append(_value(words[at], words[at + 1], packet))
            at += 2
            if words[at] != ".":
                return (" . ".join(map(str, values)) if None not in values else None), at
            at += 1

    def _is_in(self, key: str, operand: str) -> bool:
        if operand.startswith("@"):
            return key in self._sets[operand[1:]]
        if operand.startswith("{"):
            return any(_matches(key, each.strip()) for each in operand.strip("{}").split(","))
        return _matches(key, operand)


def _elements(texts: Iterable[str]) -> dict[str, str]:
    """Return the values of a map by its keys; those of a set are empty."""
    found = {}
    for text in texts:
        key, _, value = text.partition(" : ")
        found[key] = value
    return found


def _value(kind: str, name: str, packet: Packet) -> str | None:
    if (kind, name) == ("meta", "l4proto"):
        return packet.protocol.lower()
    if (kind, name) == ("th", "dport"):
        return str(packet.port) if packet.protocol in ("TCP", "UDP", "SCTP") else None
    assert kind in ("ip", "ip6") and name in ("saddr", "daddr"), (kind, name)
    address = ip_address(packet.source if name == "saddr" else packet.destination)
    return str(address) if address.version == (6 if kind == "ip6" else 4) else None


def _matches(key: str, value: str) -> bool:
    if "/" in value:
        return ip_address(key) in ip_network(value)
    if re.fullmatch(r"\d+-\d+", value):
        first, last = map(int, value.split("-"))
        return first <= int(key) <= last
    return key == value
