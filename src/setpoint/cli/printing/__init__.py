"""Print objects: all formats of `-o`, byte for byte as kubectl does.

`make_get_printer` is for verbs that show objects, `make_printer` for verbs that change them. A printer takes one object
after the other (`print`) and returns text; tables return theirs with `flush`. Printers do no I/O: the time and whether
there is a terminal are passed in. An object that cannot be printed raises `PrintProblem`, whose `output` is still
written to stdout.
"""

from __future__ import annotations

from setpoint.cli.printing.formats import FORMATS, GET_FORMATS, OutputFlags, make_get_printer, make_printer
from setpoint.cli.printing.interface import (
    DRY_RUN,
    NamePrinter,
    Printable,
    Printer,
    PrintProblem,
    WatchEvent,
    as_list,
    qualified_name,
)
from setpoint.meta.objects import Obj

__all__ = [
    "DRY_RUN",
    "FORMATS",
    "GET_FORMATS",
    "NamePrinter",
    "Obj",
    "OutputFlags",
    "PrintProblem",
    "Printable",
    "Printer",
    "WatchEvent",
    "as_list",
    "make_get_printer",
    "make_printer",
    "qualified_name",
]
