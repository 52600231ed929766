"""Parts of an nftables table as values: rendered as text, and compared to give the commands that change them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

_PER_COMMAND: Final = 2000
"""Elements that are added or deleted by one command, which bounds the length of its line."""
_NO_ELEMENTS: Final = frozenset[str]()


@dataclass(frozen=True, slots=True)
class NftSet:
    """A named set, or a map if `type` has a colon."""

    type: str
    """The type of the elements, such as `ipv4_addr . inet_service` or `ipv4_addr : verdict`."""
    elements: frozenset[str] = _NO_ELEMENTS
    """The elements as text; those of a map are keys and values, such as `10.0.0.1 : jump chain`."""
    flags: str = ""

    @property
    def keyword(self) -> str:
        return "map" if ":" in self.type else "set"

    def definition(self) -> str:
        flags = f" flags {self.flags};" if self.flags else ""
        return f"type {self.type};{flags}"


@dataclass(frozen=True, slots=True)
class NftChain:
    rules: tuple[str, ...] = ()
    hook: str = ""
    """Type, hook and priority of a base chain; empty for a chain that only other chains use."""

    def definition(self) -> str:
        return f"{self.hook};" if self.hook else ""


@dataclass(frozen=True, slots=True)
class NftState:
    """Sets, maps and chains by name. Rules and elements may refer to any of them."""

    sets: Mapping[str, NftSet] = field(default_factory=dict)
    chains: Mapping[str, NftChain] = field(default_factory=dict)


class SectionTable(Protocol):
    """A table that consists of sections."""

    reference: str
    """Family and name, as commands name the table."""

    def add_section(self, section: StateSection) -> None: ...

    async def update(self, section: StateSection) -> bool:
        """Bring a section to its desired state. Raise NftError."""
        ...


class StateSection:
    """A section of the table whose desired state is a value (see `NftSection`)."""

    def __init__(self, table: str, desired: Callable[[], NftState | None]) -> None:
        """Create the section. `table` is family and name; `desired` returns None while the state is not known."""
        self._table = table
        self._desired = desired
        self._rendered = NftState()
        """The state that the table has."""

    def full(self) -> str | None:
        state = self._desired()
        if state is None:
            return None
        self._rendered = state
        return render(state)

    def changes(self) -> str | None:
        state = self._desired()
        if state is None:
            return ""
        commands = difference(self._table, self._rendered, state)
        self._rendered = state
        return commands


def render(state: NftState) -> str:
    """Return the definitions, as between the braces of a table."""
    lines = []
    for name, each in sorted(state.sets.items()):
        elements = f" elements = {{ {', '.join(sorted(each.elements))} }};" if each.elements else ""
        lines.append(f"{each.keyword} {name} {{ {each.definition()}{elements} }}\n")
    for name, chain in sorted(state.chains.items()):
        rules = "".join(f"  {rule}\n" for rule in chain.rules)
        lines.append(f"chain {name} {{ {chain.definition()}\n{rules}}}\n")
    return "".join(lines)


def difference(table: str, old: NftState, new: NftState) -> str:
    """Return the commands that lead from one state to the other in one transaction; empty if they are equal."""
    return "".join(f"{line}\n" for line in _commands(table, old, new))


def _commands(table: str, old: NftState, new: NftState) -> Iterator[str]:
    """Yield commands so that everything is defined before it is used, and unused before it is deleted."""
    added_sets = {name for name, each in new.sets.items() if not _same_kind(old.sets.get(name), each)}
    added_chains = {name for name, each in new.chains.items() if not _same_hook(old.chains.get(name), each)}
    replaced = [name for name in old.chains if name in added_chains]
    # Names that change their kind are rare: their users are rewritten, and they are deleted first.
    for name in replaced:
        yield f"delete chain {table} {name}"
    for name in sorted(added_sets):
        each = new.sets[name]
        if name in old.sets:
            yield f"delete {old.sets[name].keyword} {table} {name}"
        yield f"add {each.keyword} {table} {name} {{ {each.definition()} }}"
    for name in sorted(added_chains):
        chain = new.chains[name]
        yield f"add chain {table} {name} {{ {chain.definition()} }}" if chain.hook else f"add chain {table} {name}"
    for name, chain in sorted(new.chains.items()):
        before = old.chains[name].rules if name in old.chains and name not in added_chains else ()
        if before == chain.rules:
            continue
        if before:
            yield f"flush chain {table} {name}"
        for rule in chain.rules:
            yield f"add rule {table} {name} {rule}"
    for name, each in sorted(new.sets.items()):
        had = _NO_ELEMENTS if name in added_sets else old.sets[name].elements
        if had is each.elements:
            continue
        yield from _element_commands("delete", table, name, map(_key, had - each.elements))
        yield from _element_commands("add", table, name, each.elements - had)
    gone = sorted(old.chains.keys() - new.chains.keys())
    for name in sorted(old.sets.keys() - new.sets.keys()):
        # Elements of a map refer to chains.
        if old.sets[name].keyword == "map":
            yield f"flush map {table} {name}"
    for name in gone:
        yield f"flush chain {table} {name}"
    for name in gone:
        yield f"delete chain {table} {name}"
    for name in sorted(old.sets.keys() - new.sets.keys()):
        yield f"delete {old.sets[name].keyword} {table} {name}"


def _element_commands(verb: str, table: str, name: str, elements: Iterable[str]) -> Iterator[str]:
    ordered = sorted(elements)
    for start in range(0, len(ordered), _PER_COMMAND):
        yield f"{verb} element {table} {name} {{ {', '.join(ordered[start : start + _PER_COMMAND])} }}"


def _key(element: str) -> str:
    return element.partition(" : ")[0]


def _same_kind(old: NftSet | None, new: NftSet) -> bool:
    return old is not None and (old.type, old.flags) == (new.type, new.flags)


def _same_hook(old: NftChain | None, new: NftChain) -> bool:
    return old is not None and old.hook == new.hook
