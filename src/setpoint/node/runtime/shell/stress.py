"""`stress` and `stress-ng`: they use what they are asked to use, for as long as they are asked to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from setpoint.meta.quantity import QuantityError, parse
from setpoint.node.runtime.shell.connecting import options_of
from setpoint.node.runtime.shell.session import FOREVER, Program, Running, Session, Streams

_NAMES = ("stress", "stress-ng")
_WITH_VALUE = frozenset((
    "c", "i", "m", "d", "t", "cpu", "io", "vm", "hdd", "timeout", "vm-bytes", "vm-keep", "vm-hang", "vm-stride",
    "hdd-bytes", "backoff", "cpu-load", "cpu-method",
))  # fmt: skip
_WORKERS = (("c", "cpu"), ("i", "io"), ("m", "vm"), ("d", "hdd"))
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Load(NamedTuple):
    """What workers use together."""

    cores: int
    memory_bytes: int


def load_of(container: Mapping[str, Any]) -> Load | None:
    """Return what a container uses whose command is `stress`; None if it is another one."""
    argv = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not argv or argv[0].rpartition("/")[2] not in _NAMES:
        return None
    return _load(argv[1:])


def _load(arguments: Sequence[str]) -> Load:
    options, _ = options_of([*arguments], _WITH_VALUE)
    cores, workers = _count(options, "c", "cpu"), _count(options, "m", "vm")
    return Load(cores + workers, workers * _bytes(options.get("vm-bytes", "256M")))


def _count(options: Mapping[str, str], *names: str) -> int:
    return next((min(int(options[name]), 4096) for name in names if options.get(name, "").isdigit()), 0)


def _bytes(text: str) -> int:
    """Return a size as stress reads it: K, M and G are powers of 1024."""
    size = text.removesuffix("B").removesuffix("b")
    try:
        return parse(f"{size[:-1]}{size[-1].upper()}i" if size[-1:].upper() in ("K", "M", "G") else size).value()
    except QuantityError:
        return 0


def _stress(session: Session, arguments: list[str], streams: Streams) -> Running:
    options, _ = options_of(arguments, _WITH_VALUE)
    workers = [
        (_count(options, letter, name), name) for letter, name in zip("cimd", ("cpu", "io", "vm", "hdd"), strict=True)
    ]
    streams.out("stress: info: [1] dispatching hogs: " + ", ".join(f"{count} {name}" for count, name in workers) + "\n")
    text = options.get("t") or options.get("timeout") or ""
    unit = _UNITS.get(text[-1:], 0)
    amount = text[:-1] if unit else text
    if not amount.isdigit():
        yield FOREVER
    yield float(amount) * (unit or 1)
    streams.out(f"stress: info: [1] successful run completed in {int(amount) * (unit or 1)}s\n")
    return 0


STRESS_PROGRAMS: dict[str, Program] = dict.fromkeys(_NAMES, _stress)
