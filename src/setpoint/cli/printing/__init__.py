"""How objects are printed: everything behind `-o`, byte for byte as kubectl does it.

`make_get_printer` is for verbs that show objects, `make_printer` for those that act on them. A printer takes one
object after the other (`print`) and gives text; tables give theirs with `flush`. Nothing is written here, and nothing
is looked up: time and whether there is a terminal are handed in. What cannot be printed raises `PrintProblem`; its
`output` belongs on stdout all the same.
"""

from __future__ import annotations

from setpoint.cli.printing.formats import FORMATS, GET_FORMATS, OutputFlags, make_get_printer, make_printer
from setpoint.cli.printing.interface import Obj, Printable, Printer, PrintProblem, WatchEvent, as_list
from setpoint.cli.printing.names import DRY_RUN, NamePrinter, qualified_name

__all__ = [
    "DRY_RUN", "FORMATS", "GET_FORMATS", "NamePrinter", "Obj", "OutputFlags", "PrintProblem", "Printable", "Printer",
    "WatchEvent", "as_list", "make_get_printer", "make_printer", "qualified_name",
]  # fmt: skip
