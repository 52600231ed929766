"""The writer of descriptions: lines at indentation levels, with aligned columns."""

from __future__ import annotations

from setpoint.cli.escaping import escaped
from setpoint.cli.tabwriter import align


class Writer:
    """Writes texts with tabs (ends of cells) and newlines, and aligns the columns.

    Control characters are escaped: the author of an object must not control the terminal of a user who describes it.
    """

    def __init__(self) -> None:
        self._aligned: list[str] = []
        self._pending: list[str] = []

    def write(self, level: int, text: str) -> None:
        self._pending.append("  " * level + escaped(text))

    def line(self, text: str = "") -> None:
        """Write the rest of the current line."""
        self.write(0, text + "\n")

    def field(self, name: str, value: object, level: int = 0) -> None:
        self.write(level, f"{name}:\t{value}\n")

    def row(self, level: int, *cells: object) -> None:
        self.write(level, "\t".join(map(str, cells)) + "\n")

    def flush(self) -> None:
        """Align what was written so far; later lines are aligned separately."""
        self._aligned.append(align("".join(self._pending)))
        self._pending.clear()

    def nested(self, levels: int) -> Writer:
        """Return a writer to the same output with everything indented by `levels`, including continued lines."""
        return _Nested(self, levels)

    def text(self) -> str:
        self.flush()
        return "".join(self._aligned)


class RawWriter(Writer):
    """A writer that leaves tabs unchanged."""

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
