"""Error messages in kubectl's words, and exit codes."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.cli.flags import UsageProblem
from setpoint.cli.printing.interface import PrintProblem
from setpoint.client.kubeconfig import KubeconfigError
from setpoint.client.transport import Unreachable
from setpoint.meta.errors import ApiError, Invalid
from setpoint.meta.goformat import quote


class Failed(Exception):
    """A command failed; the message is printed after `error: `."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class Exit(Exception):
    """Ends the command with this exit code; the text, if any, is printed as it is."""

    def __init__(self, code: int, error_text: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.error_text = error_text


class Several(Exception):
    """Several errors of one command; the other objects were processed."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = tuple(errors)


EXPECTED = (
    Failed,
    Exit,
    Several,
    UsageProblem,
    PrintProblem,
    ApiError,
    Unreachable,
    KubeconfigError,
    OSError,
    ValueError,  # among them BodyError
)
"""The errors that are printed as one sentence. Any other is a bug and is shown with a traceback."""


def raise_all(errors: Sequence[Exception]) -> None:
    """Raise nothing, the only error, or all errors as one."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise Several(errors)


def first_of(found: BaseExceptionGroup[Exception]) -> Exception:
    """Return the first failure of nested exception groups."""
    error = found.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error


def with_source(error: Exception, doing: str, source: str) -> Exception:
    """Return the same failure with its file: `error when creating "x.yaml": ...`."""
    message = f"error when {doing} {quote(source)}: "
    if isinstance(error, ApiError):
        error.message = message + error.message
        error.args = (error.message,)
        return error
    return Failed(message + str(error))


def exit_code(error: BaseException, of_failures: int = 1) -> int:
    if isinstance(error, Exit):
        return error.code
    return max(error.code, of_failures) if isinstance(error, Failed) else of_failures


def error_text(error: BaseException, command: str = "setpoint") -> str:
    """Return the lines to print; empty if there are none. `command` is the command that was typed."""
    if isinstance(error, Exit):
        return error.error_text
    if isinstance(error, UsageProblem):
        return f"error: {error}\nSee '{command} --help' for usage."
    if isinstance(error, Several):
        return "\n".join(_message(one) for one in error.errors)
    if isinstance(error, Invalid) and error.reason == "Invalid":
        return _invalid(error)
    return _message(error)


def _message(error: BaseException) -> str:
    if isinstance(error, ApiError):
        if error.reason == "Unauthorized":
            return f"error: You must be logged in to the server ({error.message})"
        return f"Error from server ({error.reason}): {error.message}" if error.reason else _from_server(error)
    if isinstance(error, Unreachable):
        return _capital(str(error))
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"error: {where}{error.strerror}"
    text = str(error)
    if isinstance(error, PrintProblem) and error.hint:
        text = f"{text.rstrip()}\n{error.hint}"
    return text if text.startswith("error: ") else f"error: {text}"


def _from_server(error: ApiError) -> str:
    return f"Error from server: {error.message}"


def _invalid(error: ApiError) -> str:
    details = error.details
    if details is None:
        return f"The request is invalid: {error.message}" if error.message else "The request is invalid"
    causes = list(
        dict.fromkeys(f"{one.get('field', '')}: {one.get('message', '')}" for one in details.get("causes") or ())
    )
    start = "The request is invalid"
    if details.get("kind") or details.get("name"):
        start = f"The {details.get('kind', '')} {quote(details.get('name', ''))} is invalid"
    elif error.message and not causes:
        start += f": {error.message}"
    if not causes:
        return start
    if len(causes) == 1:
        return f"{start}: {causes[0]}"
    return "\n".join([f"{start}: ", *(f"* {cause}" for cause in causes)])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
