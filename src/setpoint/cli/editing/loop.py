"""The edit loop: edit and save, and edit again with the reasons if saving failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from setpoint.cli.editing.editor import edit_text
from setpoint.cli.failures import EXPECTED, Exit, Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.printing.documents import without_managed_fields
from setpoint.cli.resources import Target
from setpoint.cli.resources.choosing import placed
from setpoint.cli.resources.manifests import documents
from setpoint.meta.body import BodyError, dump_yaml, parse_yaml
from setpoint.meta.errors import ApiError, Invalid, NotFound
from setpoint.meta.goformat import quote
from setpoint.meta.gojson import indented

Obj = dict[str, Any]
OBJECTS = """\
# Please edit the object below. Lines beginning with a '#' will be ignored,
# and an empty file will abort the edit. If an error occurs while saving this file will be
# reopened with the relevant failures.
#
"""
ANNOTATIONS = """\
# Please edit the 'last-applied-configuration' annotations below.
# Lines beginning with a '#' will be ignored, and an empty file will abort the edit.
#
"""


@dataclass
class Outcome:
    """The result of one attempt to save."""

    reasons: list[tuple[str, list[str]]] = field(default_factory=list)
    """The errors of the edited text by object; it is edited again if there are any."""
    retryable: int = 0
    missing: int = 0

    def add(self, error: ApiError, target: Target) -> str:
        """Add the error of one object and return the message to print."""
        what = f"{target.resource} {quote(target.name)}"
        if isinstance(error, Invalid) and error.reason == "Invalid":
            causes = (error.details or {}).get("causes") or ()
            given = [f"{one.get('field', '')}: {one.get('message', '')}" for one in causes]
            self.reasons.append((f"{what} was not valid", given))
            return f"error: {what} is invalid"
        if isinstance(error, NotFound):
            self.missing += 1
            return f"error: {what} could not be found on the server"
        self.retryable += 1
        return f"error: {what} could not be patched: {error.message}"


Save = Callable[[list[Target], Outcome], Awaitable[None]]
"""Saves the edited objects; errors that the user can correct go into the outcome, others are raised."""


class Editing:
    def __init__(self, call: Invocation, header: str) -> None:
        self._call = call
        self._header = header
        self._json = call.flags.output == "json"
        self._file: Path | None = None
        """The file with the last edited text; None before the first edit."""

    async def edit(self, targets: list[Target], save: Save) -> None:
        """Edit until saving succeeds or the user gives up. Raise Failed or Exit."""
        original = self._text(targets)
        text, outcome, edited = original, Outcome(), b""
        while True:
            shown = (b"" if self._json else self._headed(outcome)) + text
            before = edited
            edited = self._edited(shown)
            again = bool(outcome.reasons)
            if again and _stripped(before) == _stripped(edited):
                raise self._kept(Failed("Edit cancelled, no valid changes were saved."))
            if _stripped(original) == _stripped(edited):
                self._forget()
                self._call.print_err("Edit cancelled, no changes made.")
                return
            if not _has_lines(edited):
                self._forget()
                self._call.print_err("Edit cancelled, saved file was empty.")
                return
            text, outcome = _without_comments(edited), Outcome()
            try:
                found = await self._read(edited)
            except EXPECTED as error:
                outcome.reasons.append((f"The edited file had a syntax error: {error}", []))
                continue
            try:
                await save(found, outcome)
            except EXPECTED as error:
                raise self._kept(error) from None
            if self._settled(outcome):
                return

    def _settled(self, outcome: Outcome) -> bool:
        if outcome.retryable:
            self._call.print_err(f"You can run `setpoint replace -f {self._file}` to try this update again.")
            raise Exit(1)
        if outcome.missing:
            self._call.print_err(f"The edits you made on deleted resources have been saved to {quote(str(self._file))}")
            raise Exit(1)
        if outcome.reasons:
            return False
        self._forget()
        return True

    def _text(self, targets: list[Target]) -> bytes:
        objects = [without_managed_fields(target.obj or {}) for target in targets]
        obj = objects[0]
        if len(objects) > 1:
            obj = {"apiVersion": "v1", "items": objects, "kind": "List", "metadata": {}}
        return (indented(obj) + "\n").encode() if self._json else dump_yaml(obj)

    def _headed(self, outcome: Outcome) -> bytes:
        lines = [self._header]
        for head, others in outcome.reasons:
            lines.append(f"# {_hashed(head)}{':' if others else ''}\n")
            lines += [f"# * {_hashed(one)}\n" for one in others]
            lines.append("#\n")
        return "".join(lines).encode()

    def _edited(self, data: bytes) -> bytes:
        if self._call.flags.windows_line_endings:
            data = data.replace(b"\n", b"\r\n")
        before = self._file
        try:
            edited, self._file = edit_text(self._call, data, ".json" if self._json else ".yaml")
        except Failed as error:
            raise self._kept(error) from None
        if before is not None:
            before.unlink(missing_ok=True)
        return edited

    async def _read(self, data: bytes) -> list[Target]:
        return [await placed(self._call, document) for document in documents(data, "edited-file")]

    def _forget(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)
            self._file = None

    def _kept(self, error: Exception) -> Exception:
        if self._file is not None and self._file.exists():
            self._call.print_err(f"A copy of your changes has been stored to {quote(str(self._file))}")
        return error


def _without_comments(data: bytes) -> bytes:
    return b"".join(line for line in data.splitlines(True) if not line.lstrip().startswith(b"#"))


def _stripped(data: bytes) -> Any:
    """Return the parsed content if it is valid: equal contents are not a change."""
    try:
        return parse_yaml(data)[0]
    except BodyError:
        return _without_comments(data)


def _has_lines(data: bytes) -> bool:
    return any((bare := line.strip()) and not bare.startswith(b"#") for line in data.splitlines())


def _hashed(text: str) -> str:
    """Return the text as comment lines."""
    return text.replace("\n#", "\n").replace("\n", "\n# ")
