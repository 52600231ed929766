"""The command line of `stress`, from which the usage of its container follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from setpoint.meta.quantity import QuantityError, parse
from setpoint.node.runtime.shell.session import parse_options

STRESS_NAMES = ("stress", "stress-ng")
STRESS_OPTIONS = frozenset(
    (
        "c",
        "i",
        "m",
        "d",
        "t",
        "cpu",
        "io",
        "vm",
        "hdd",
        "timeout",
        "vm-bytes",
        "vm-keep",
        "vm-hang",
        "vm-stride",
        "hdd-bytes",
        "backoff",
        "cpu-load",
        "cpu-method",
    )
)
"""Options with a value."""


class Load(NamedTuple):
    """The usage of all workers together."""

    cores: int
    memory_bytes: int


def load_of(container: Mapping[str, Any]) -> Load | None:
    """Return the usage of a container whose command is `stress`; None if it is another one."""
    argv = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not argv or argv[0].rpartition("/")[2] not in STRESS_NAMES:
        return None
    return _load(argv[1:])


def _load(arguments: Sequence[str]) -> Load:
    options, _ = parse_options([*arguments], STRESS_OPTIONS)
    cores, workers = count_of(options, "c", "cpu"), count_of(options, "m", "vm")
    return Load(cores + workers, workers * _bytes(options.get("vm-bytes", "256M")))


def count_of(options: Mapping[str, str], *names: str) -> int:
    return next((min(int(options[name]), 4096) for name in names if options.get(name, "").isdigit()), 0)


def _bytes(text: str) -> int:
    """Parse a size as stress does: K, M and G are powers of 1024."""
    size = text.removesuffix("B").removesuffix("b")
    try:
        return parse(f"{size[:-1]}{size[-1].upper()}i" if size[-1:].upper() in ("K", "M", "G") else size).value()
    except QuantityError:
        return 0
