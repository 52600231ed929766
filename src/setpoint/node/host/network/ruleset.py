"""Rules of an nftables table as data, and the commands that lead from one state of them to another.

A ruleset consists of fragments, one for each object that rules are made for. A change of one object costs time in
proportion to that object, not to the whole ruleset. A part of the table that is computed as a whole is a ruleset with
one fragment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

_PER_COMMAND: Final = 1000
"""Elements that are added or deleted by one command, which bounds the length of its line."""
_NO_ELEMENTS: Final = frozenset[str]()


@dataclass(frozen=True, slots=True)
class NftSet:
    """A named set, or a map if `type` has a colon."""

    type: str
    """The type of the elements, such as `ipv4_addr . inet_service` or `ipv4_addr : verdict`."""
    elements: frozenset[str] = _NO_ELEMENTS
    """The elements as text; those of a map are keys and values, such as `10.0.0.1 : jump chain`. Fragments add to sets
    of others by `Fragment.elements`."""
    flags: str = ""
    timeout: int = 0
    """Seconds after which elements that packets have added are removed; 0 means never."""

    @property
    def keyword(self) -> str:
        return "map" if ":" in self.type else "set"

    def declaration(self) -> str:
        flags = f" flags {self.flags};" if self.flags else ""
        return f"type {self.type};{flags}" + (f" timeout {self.timeout}s;" if self.timeout else "")


@dataclass(frozen=True, slots=True)
class NftChain:
    rules: tuple[str, ...] = ()
    hook: str = ""
    """Type, hook and priority of a base chain; empty for a chain that only other chains use."""


class ElementKey(NamedTuple):
    """Names an element of a set or a map."""

    container: str
    """The name of the set or map."""
    key: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """The rules of one object. Its sets, maps and chains are its own; elements may belong to those of others."""

    sets: Mapping[str, NftSet] = field(default_factory=dict)
    chains: Mapping[str, NftChain] = field(default_factory=dict)
    elements: Mapping[ElementKey, str] = field(default_factory=dict)
    """The value of each element of a shared set or map; empty for elements of sets."""


_NOTHING: Final = Fragment()


class Ruleset:
    """The desired rules of one section of a table, and those that were rendered last.

    If several fragments have the same element of a shared set, that of the first owner in alphabetical order is in
    force.
    """

    def __init__(self, reference: str) -> None:
        """Create an empty ruleset for the table `reference`, such as `inet setpoint`."""
        self._reference = reference
        self._desired: dict[str, Fragment] = {}
        self._rendered: dict[str, Fragment] = {}
        self._claims: dict[ElementKey, dict[str, str]] = {}
        """The desired values of each element of a shared set by owner."""
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
        shared: dict[str, list[str]] = {}
        for key, value in self._rendered_elements.items():
            shared.setdefault(key.container, []).append(_element(key.key, value))
        lines: list[str] = []
        fragments = [self._rendered[owner] for owner in sorted(self._rendered)]
        for fragment in fragments:
            for name, each in fragment.sets.items():
                lines.append(f"\t{each.keyword} {name} {{\n\t\t{each.declaration()}")
                if elements := [*each.elements, *shared.get(name, ())]:
                    lines.append(f"\t\telements = {{ {', '.join(sorted(elements))} }}")
                lines.append("\t}")
        for fragment in fragments:
            for name, chain in fragment.chains.items():
                lines.append(f"\tchain {name} {{")
                if chain.hook:
                    lines.append(f"\t\t{chain.hook};")
                lines.extend(f"\t\t{rule}" for rule in chain.rules)
                lines.append("\t}")
        return "\n".join(lines) + "\n" if lines else ""

    def changes(self) -> str | None:
        """Return the commands that lead from the rules rendered last to the desired ones; empty if they are equal, None
        if the table has to be replaced because a name has another declaration than before.

        Chains and sets are made before rules and elements refer to them, and deleted afterwards.
        """
        owners = sorted(self._changed)
        pairs = [(self._rendered.get(owner, _NOTHING), self._desired.get(owner, _NOTHING)) for owner in owners]
        if any(_is_redeclared(old, new) for old, new in pairs):
            return None
        lines = [*self._additions(pairs), *self._rules(pairs), *self._elements(pairs), *self._deletions(pairs)]
        for owner in owners:
            if owner in self._desired:
                self._rendered[owner] = self._desired[owner]
            else:
                self._rendered.pop(owner, None)
        self._changed.clear()
        return "\n".join(lines) + "\n" if lines else ""

    def _additions(self, pairs: Iterable[tuple[Fragment, Fragment]]) -> Iterator[str]:
        for old, new in pairs:
            for name in sorted(new.sets.keys() - old.sets.keys()):
                each = new.sets[name]
                yield f"add {each.keyword} {self._reference} {name} {{ {each.declaration()} }}"
            for name in sorted(new.chains.keys() - old.chains.keys()):
                hook = f" {{ {new.chains[name].hook}; }}" if new.chains[name].hook else ""
                yield f"add chain {self._reference} {name}{hook}"

    def _rules(self, pairs: Iterable[tuple[Fragment, Fragment]]) -> Iterator[str]:
        for old, new in pairs:
            for name, chain in new.chains.items():
                before = old.chains.get(name)
                if before == chain:
                    continue
                if before is not None and before.rules:
                    yield f"flush chain {self._reference} {name}"
                for rule in chain.rules:
                    yield f"add rule {self._reference} {name} {rule}"

    def _elements(self, pairs: Sequence[tuple[Fragment, Fragment]]) -> Iterator[str]:
        removed: dict[str, list[str]] = {}
        added: dict[str, list[str]] = {}
        for old, new in pairs:
            for name, each in new.sets.items():
                had = old.sets[name].elements if name in old.sets else _NO_ELEMENTS
                if had is not each.elements and had != each.elements:
                    removed[name] = [element.partition(" : ")[0] for element in had - each.elements]
                    added[name] = list(each.elements - had)
        for key in {key for old, new in pairs for key in (*old.elements, *new.elements)}:
            before = self._rendered_elements.get(key)
            values = self._claims.get(key)
            after = _effective(values) if values else None
            if before == after:
                continue
            if before is not None:
                removed.setdefault(key.container, []).append(key.key)
                del self._rendered_elements[key]
            if after is not None:
                added.setdefault(key.container, []).append(_element(key.key, after))
                self._rendered_elements[key] = after
        for verb, found in (("delete", removed), ("add", added)):
            for container, elements in sorted(found.items()):
                ordered = sorted(elements)
                for start in range(0, len(ordered), _PER_COMMAND):
                    part = ", ".join(ordered[start : start + _PER_COMMAND])
                    yield f"{verb} element {self._reference} {container} {{ {part} }}"

    def _deletions(self, pairs: Iterable[tuple[Fragment, Fragment]]) -> Iterator[str]:
        sets = [(name, each) for old, new in pairs for name, each in sorted(old.sets.items()) if name not in new.sets]
        # Elements of maps refer to chains, and chains to each other, so that all of them are emptied first.
        yield from (f"flush map {self._reference} {name}" for name, each in sets if each.keyword == "map")
        chains = sorted(name for old, new in pairs for name in old.chains.keys() - new.chains.keys())
        yield from (f"flush chain {self._reference} {name}" for name in chains)
        yield from (f"delete chain {self._reference} {name}" for name in chains)
        yield from (f"delete {each.keyword} {self._reference} {name}" for name, each in sets)


class SectionTable(Protocol):
    """A table that consists of sections."""

    reference: str
    """Family and name, as commands name the table."""

    def add_section(self, section: StateSection) -> None: ...

    async def update(self, section: StateSection) -> bool:
        """Bring a section to its desired state. Raise NftError."""
        ...


class StateSection:
    """A section of the table that is computed as a whole (see `NftSection`)."""

    def __init__(self, table: str, desired: Callable[[], Fragment | None]) -> None:
        """Create the section. `table` is family and name; `desired` returns None while the state is not known."""
        self._rules = Ruleset(table)
        self._desired = desired
        self.rendered = _NOTHING
        """The state that was rendered last."""

    def full(self) -> str | None:
        return self._rules.full() if self._update() else None

    def changes(self) -> str | None:
        return self._rules.changes() if self._update() else ""

    def _update(self) -> bool:
        state = self._desired()
        if state is None:
            return False
        self.rendered = state
        self._rules.put("", state)
        return True


def _is_redeclared(old: Fragment, new: Fragment) -> bool:
    return any(
        name in old.sets and old.sets[name].declaration() != each.declaration() for name, each in new.sets.items()
    ) or any(name in old.chains and old.chains[name].hook != each.hook for name, each in new.chains.items())


def _effective(values: Mapping[str, str]) -> str:
    return values[min(values)] if len(values) > 1 else next(iter(values.values()))


def _element(key: str, value: str) -> str:
    return f"{key} : {value}" if value else key
