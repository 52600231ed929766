"""How failures are told, in kubectl's words, and the exit codes they end with."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.cli.flags import UsageProblem
from setpoint.cli.printing.interface import PrintProblem
from setpoint.client.kubeconfig import KubeconfigError
from setpoint.client.transport import Unreachable
from setpoint.meta.body import BodyError
from setpoint.meta.errors import ApiError, Invalid
from setpoint.meta.goformat import quote


class Failed(Exception):
    """What could not be done; the message is told after `error: `."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class Exit(Exception):
    """The command ends here with this code; what there was to say has been said, or is `told` as it is."""

    def __init__(self, code: int, told: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.told = told


class Several(Exception):
    """Some went wrong, each in its own way; the others were done."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = tuple(errors)


EXPECTED = (
    Failed, Exit, Several, UsageProblem, PrintProblem, ApiError, Unreachable, KubeconfigError, BodyError, OSError,
    ValueError,
)  # fmt: skip
"""What is told in a sentence. Anything else is a bug, and its traceback is wanted."""


def raise_all(errors: Sequence[Exception]) -> None:
    """Nothing, the one error, or all of them as one."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise Several(errors)


def first_of(found: BaseExceptionGroup[Exception]) -> Exception:
    """Return the first failure of a task group, which wraps what is raised in it, each group once more."""
    error = found.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error


def with_source(error: Exception, doing: str, source: str) -> Exception:
    """The same failure, with the file it is about: `error when creating "x.yaml": ...`."""
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


def told(error: BaseException, command: str = "setpoint") -> str:
    """The lines that a person reads; empty if there is nothing to add. `command` is the one they typed."""
    if isinstance(error, Exit):
        return error.told
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
