"""Rules of an nftables table as data, and the differences between two states of them.

A ruleset consists of fragments, one for each object that rules are made for. A change of one object costs time in
proportion to that object, not to the whole ruleset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

_ELEMENTS_PER_COMMAND: Final = 500


class ElementKey(NamedTuple):
    """Names an element of a set or a map."""

    container: str
    """The name of the set or map."""
    key: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """The rules of one object. Its sets, maps and chains are its own; elements may belong to those of others."""

    sets: Mapping[str, str] = field(default_factory=dict)
    """Declarations of sets by name, such as `type ipv4_addr; flags interval;`."""
    maps: Mapping[str, str] = field(default_factory=dict)
    """Declarations of maps by name, such as `type ipv4_addr : verdict;`."""
    hooks: Mapping[str, str] = field(default_factory=dict)
    """For chains that are attached to a hook, the declaration, such as `type nat hook output priority -100;`."""
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The rules of each chain by its name."""
    elements: Mapping[ElementKey, str] = field(default_factory=dict)
    """The value of each element; empty for elements of sets."""


_NOTHING: Final = Fragment()


class Ruleset:
    """The desired rules of one section of a table, and those that were rendered last.

    Declarations of sets, maps and hooks never change: an object that needs another one uses another name. If several
    fragments have the same element, that of the first owner in alphabetical order is in force.
    """

    def __init__(self, reference: str) -> None:
        """Create an empty ruleset for the table `reference`, such as `inet setpoint`."""
        self._reference = reference
        self._desired: dict[str, Fragment] = {}
        self._rendered: dict[str, Fragment] = {}
        self._claims: dict[ElementKey, dict[str, str]] = {}
        """The desired values of each element by owner."""
        self._rendered_elements: dict[ElementKey, str] = {}
        self._changed: set[str] = set()
        """Owners whose desired fragment may differ from the rendered one."""

    def __contains__(self, owner: str) -> bool:
        return owner in self._desired

    def put(self, owner: str, fragment: Fragment | None) -> bool:
        """Set the fragment of an owner; None removes it. Return whether it changed."""
        old = self._desired.get(owner)
        if old == fragment:
            return False
        for key in (old or _NOTHING).elements:
            values = self._claims[key]
            del values[owner]
            if not values:
                del self._claims[key]
        if fragment is None:
            del self._desired[owner]
        else:
            self._desired[owner] = fragment
            for key, value in fragment.elements.items():
                self._claims.setdefault(key, {})[owner] = value
        self._changed.add(owner)
        return True

    def full(self) -> str:
        """Return the definitions of all sets, maps and chains, as between the braces of a table."""
        self._rendered = dict(self._desired)
        self._rendered_elements = {key: _effective(values) for key, values in self._claims.items()}
        self._changed.clear()
        contents: dict[str, list[str]] = {}
        for key, value in self._rendered_elements.items():
            contents.setdefault(key.container, []).append(_element(key.key, value))
        lines: list[str] = []
        fragments = [self._rendered[owner] for owner in sorted(self._rendered)]
        for fragment in fragments:
            for kind, declared in (("set", fragment.sets), ("map", fragment.maps)):
                for name, declaration in declared.items():
                    lines.append(f"\t{kind} {name} {{\n\t\t{declaration}")
                    if found := contents.get(name):
                        lines.append(f"\t\telements = {{ {', '.join(sorted(found))} }}")
                    lines.append("\t}")
        for fragment in fragments:
            for name, rules in fragment.chains.items():
                lines.append(f"\tchain {name} {{")
                if name in fragment.hooks:
                    lines.append(f"\t\t{fragment.hooks[name]}")
                lines.extend(f"\t\t{rule}" for rule in rules)
                lines.append("\t}")
        return "\n".join(lines) + "\n" if lines else ""

    def changes(self) -> str:
        """Return the commands that lead from the rules rendered last to the desired ones; empty if they are equal.

        Chains and sets are made before rules and elements refer to them, and deleted afterwards.
        """
        pairs = [(self._rendered.get(owner, _NOTHING), self._desired.get(owner, _NOTHING)) for owner in self._owners()]
        lines = [*self._additions(pairs), *self._rules(pairs), *self._elements(pairs), *self._deletions(pairs)]
        for owner in self._changed:
            if owner in self._desired:
                self._rendered[owner] = self._desired[owner]
            else:
                self._rendered.pop(owner, None)
        self._changed.clear()
        return "\n".join(lines) + "\n" if lines else ""

    def _owners(self) -> list[str]:
        return sorted(self._changed)

    def _additions(self, pairs: Iterable[tuple[Fragment, Fragment]]) -> Iterator[str]:
        for old, new in pairs:
            for kind, before, after in (("set", old.sets, new.sets), ("map", old.maps, new.maps)):
                for name in after.keys() - before.keys():
                    yield f"add {kind} {self._reference} {name} {{ {after[name]} }}"
            for name in sorted(new.chains.keys() - old.chains.keys()):
                hook = f" {{ {new.hooks[name]} }}" if name in new.hooks else ""
                yield f"add chain {self._reference} {name}{hook}"

    def _rules(self, pairs: Iterable[tuple[Fragment, Fragment]]) -> Iterator[str]:
        for old, new in pairs:
            for name, rules in new.chains.items():
                if old.chains.get(name) == rules:
                    continue
                if name in old.chains:
                    yield f"flush chain {self._reference} {name}"
                for rule in rules:
                    yield f"add rule {self._reference} {name} {rule}"

    def _elements(self, pairs: Iterable[tuple[Fragment, Fragment]]) -> Iterator[str]:
        removed, added = [], []
        for key in sorted({key for old, new in pairs for key in (*old.elements, *new.elements)}):
            before = self._rendered_elements.get(key)
            values = self._claims.get(key)
            after = _effective(values) if values else None
            if before == after:
                continue
            if before is not None:
                removed.append((key.container, _element(key.key, before)))
                del self._rendered_elements[key]
            if after is not None:
                added.append((key.container, _element(key.key, after)))
                self._rendered_elements[key] = after
        for verb, elements in (("delete", removed), ("add", added)):
            for container, group in groupby(elements, key=itemgetter(0)):
                found = [text for _, text in group]
                for start in range(0, len(found), _ELEMENTS_PER_COMMAND):
                    part = ", ".join(found[start : start + _ELEMENTS_PER_COMMAND])
                    yield f"{verb} element {self._reference} {container} {{ {part} }}"

    def _deletions(self, pairs: Iterable[tuple[Fragment, Fragment]]) -> Iterator[str]:
        chains = sorted(name for old, new in pairs for name in old.chains.keys() - new.chains.keys())
        # Chains refer to each other, so that all of them are emptied first.
        yield from (f"flush chain {self._reference} {name}" for name in chains)
        yield from (f"delete chain {self._reference} {name}" for name in chains)
        for old, new in pairs:
            yield from (f"delete set {self._reference} {name}" for name in sorted(old.sets.keys() - new.sets.keys()))
            yield from (f"delete map {self._reference} {name}" for name in sorted(old.maps.keys() - new.maps.keys()))


def _effective(values: Mapping[str, str]) -> str:
    return values[min(values)] if len(values) > 1 else next(iter(values.values()))


def _element(key: str, value: str) -> str:
    return f"{key} : {value}" if value else key
