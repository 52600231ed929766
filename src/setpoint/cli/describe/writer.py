"""What descriptions are written with: lines at levels of indentation, aligned at the end."""

from __future__ import annotations

from setpoint.cli.escaping import escaped
from setpoint.cli.tabwriter import align


class Writer:
    """Texts may contain tabs (the end of a cell) and newlines. What could steer a terminal is made visible: whoever can
    write into an object must not write on the screen of those who look at it."""

    def __init__(self) -> None:
        self._aligned: list[str] = []
        self._pending: list[str] = []

    def write(self, level: int, text: str) -> None:
        self._pending.append("  " * level + escaped(text))

    def line(self, text: str = "") -> None:
        """The rest of a line that was begun."""
        self.write(0, text + "\n")

    def field(self, name: str, value: object, level: int = 0) -> None:
        self.write(level, f"{name}:\t{value}\n")

    def row(self, level: int, *cells: object) -> None:
        self.write(level, "\t".join(map(str, cells)) + "\n")

    def flush(self) -> None:
        """What follows is aligned for itself."""
        self._aligned.append(align("".join(self._pending)))
        self._pending.clear()

    def nested(self, levels: int) -> Writer:
        """Writes to the same place, everything by so many levels deeper, also what continues a line."""
        return _Nested(self, levels)

    def text(self) -> str:
        self.flush()
        return "".join(self._aligned)


class RawWriter(Writer):
    """Leaves its tabs as they are."""

    def flush(self) -> None:
        self._aligned.append("".join(self._pending))
        self._pending.clear()


class _Nested(Writer):
    def __init__(self, outer: Writer, levels: int) -> None:
        self._outer = outer
        self._levels = levels

    def write(self, level: int, text: str) -> None:
        self._outer.write(level + self._levels, text)

    def flush(self) -> None:
        self._outer.flush()

    def text(self) -> str:
        return self._outer.text()
