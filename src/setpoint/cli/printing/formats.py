"""Choose the printer for `-o`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from setpoint.cli.files import CommandFiles, HostFiles, reason
from setpoint.cli.printing.interface import Printer, PrintProblem

# Printers are imported where they are chosen: most command lines need only one.

_JSONPATH = ("jsonpath", "jsonpath-as-json", "jsonpath-file")
_TEMPLATE = ("go-template", "go-template-file", "template", "templatefile")
_COLUMNS = ("custom-columns", "custom-columns-file")
_DOCUMENT = ("json", "yaml", "kyaml")

FORMATS = (*_DOCUMENT, "name", *_TEMPLATE, *_JSONPATH)
"""The formats of every verb that prints objects."""
GET_FORMATS = (*FORMATS, *_COLUMNS, "wide")


class OutputFlags(NamedTuple):
    """The flags of `-o`, as typed."""

    output: str = ""
    template: str = ""
    allow_missing_template_keys: bool = True
    show_managed_fields: bool = False
    no_headers: bool = False
    show_labels: bool = False
    label_columns: tuple[str, ...] = ()
    show_kind: bool = False
    sort_by: str = ""
    files: CommandFiles = HostFiles()
    """The files among which template files are read."""

    @property
    def for_people(self) -> bool:
        """Whether to print a table, which the server generates."""
        return self.output == "wide" or not (self.output or self.template)

    def check(self) -> None:
        """Raise PrintProblem for flags that exclude each other."""
        if self.show_labels and self.output not in ("", "wide"):
            raise PrintProblem(f"--show-labels option cannot be used with {self.output} printer")
        if self.label_columns and self.output.startswith("custom-columns"):
            raise PrintProblem(f"--label-columns option cannot be used with {self.output} printer")


def make_printer(flags: OutputFlags, operation: str = "") -> Printer:
    """Return the printer of a verb that changes objects: without `-o` it prints a line such as `pod/web created`.

    The operation may be formatted with one of `DRY_RUN` before.
    """
    output = "go-template" if flags.template and not flags.output else flags.output
    chosen = _document(output, flags) or _name(output, operation) or _template(output, flags)
    if chosen is None:
        raise _unknown(flags.output, FORMATS)
    return chosen


def make_get_printer(
    flags: OutputFlags,
    now: Callable[[], datetime],
    *,
    kind: str = "",
    group: str = "",
    with_namespace: bool = False,
    with_kind: bool = False,
    colour: bool = False,
) -> Printer:
    """Return the printer of a verb that shows objects: without `-o` it prints a table.

    `kind` and `group` are those of the objects; they prefix the names with `with_kind` (several kinds were requested)
    or `--show-kind`.
    """
    output = "go-template" if flags.template and not flags.output else flags.output
    chosen = _template(output, flags) or _document(output, flags)
    if chosen is None and output in ("", "wide"):
        from setpoint.cli.printing.table import TableOptions, TablePrinter

        qualified = f"{kind}.{group}" if group else kind
        options = TableOptions(
            wide=output == "wide",
            no_headers=flags.no_headers,
            with_namespace=with_namespace,
            kind=qualified.lower() if with_kind or flags.show_kind else "",
            label_columns=flags.label_columns,
            show_labels=flags.show_labels,
            colour=colour,
        )
        chosen = TablePrinter(options, now)
    chosen = chosen or _columns(output, flags) or _name(output, "")
    if chosen is None:
        raise _unknown(output, GET_FORMATS)
    if flags.sort_by:
        from setpoint.cli.printing.sorting import SortingPrinter

        chosen = SortingPrinter(flags.sort_by, chosen)
    return chosen


def _unknown(output: str, formats: Iterable[str]) -> PrintProblem:
    from setpoint.meta.goformat import quote

    return PrintProblem(
        f"unable to match a printer suitable for the output format {quote(output)}, "
        f"allowed formats are: {','.join(sorted(formats))}"
    )


def _document(output: str, flags: OutputFlags) -> Printer | None:
    if output.lower() not in _DOCUMENT:
        return None
    from setpoint.cli.printing import documents

    match output.lower():
        case "json":
            return documents.JsonPrinter(flags.show_managed_fields)
        case "yaml":
            return documents.YamlPrinter(flags.show_managed_fields)
    return documents.KyamlPrinter(flags.show_managed_fields)


def _name(output: str, operation: str) -> Printer | None:
    if output.lower() not in ("", "name"):
        return None
    from setpoint.cli.printing.interface import NamePrinter

    return NamePrinter("" if output else operation)


def _template(output: str, flags: OutputFlags) -> Printer | None:
    if found := _with_argument(output, flags.template, _JSONPATH):
        format, template = found
        from setpoint.cli.printing.templates import JsonPathPrinter

        text = _file(flags, template, "--template") if format == "jsonpath-file" else template
        return JsonPathPrinter(text, flags.allow_missing_template_keys, as_json=format == "jsonpath-as-json")
    if found := _with_argument(output, flags.template, _TEMPLATE):
        format, template = found
        from setpoint.cli.printing.templates import GoTemplatePrinter

        text = _file(flags, template, "--template") if format in ("go-template-file", "templatefile") else template
        return GoTemplatePrinter(text, flags.allow_missing_template_keys)
    return None


def _columns(output: str, flags: OutputFlags) -> Printer | None:
    found = _with_argument(
        output, flags.template, _COLUMNS, "custom-columns format specified but no custom columns given"
    )
    if found is None:
        return None
    format, spec = found
    from setpoint.cli.printing.templates import ColumnsPrinter, columns_of_file, columns_of_spec

    if format == "custom-columns-file":
        return ColumnsPrinter(columns_of_file(_file(flags, spec, "template")))  # its headers are always printed
    return ColumnsPrinter(columns_of_spec(spec), flags.no_headers)


def _with_argument(
    output: str,
    template: str,
    formats: tuple[str, ...],
    missing: str = "template format specified but no template given",
) -> tuple[str, str] | None:
    """Return the format and its template, which follows `=` or is a separate flag; None for other formats."""
    name, _, argument = (output, "", "") if template else output.partition("=")
    if name not in formats:
        return None
    if not (template or argument):
        raise PrintProblem(missing)
    return name, template or argument


def _file(flags: OutputFlags, name: str, what: str) -> str:
    try:
        return flags.files.read(name).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise PrintProblem(f"error reading {what} {name}, open {name}: {reason(error)}") from None
