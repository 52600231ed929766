"""Read keys and values from literals, files, directories and env files."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping

from setpoint.cli.failures import Failed
from setpoint.cli.files import CommandFiles, reason
from setpoint.cli.flags import array, switch, texts
from setpoint.cli.invocation import Invocation
from setpoint.meta import names
from setpoint.meta.goformat import quote
from setpoint.meta.gojson import compact

FROM_FILE = texts(
    "from-file",
    help="A file, as path or as key=path; without a key it is the file's name. Of a directory, every file whose name "
    "is a valid key.",
)
FROM_LITERAL = array("from-literal", help="A key and its value: key=value")
FROM_ENV_FILE = texts("from-env-file", help="A file with lines of key=value")
APPEND_HASH = switch("append-hash", help="Append a hash of the content to its name.")
_LONGEST_LINE = 64 * 1024
_BOM = b"\xef\xbb\xbf"

Add = Callable[[str, bytes], None]


def check_sources(invocation: Invocation) -> None:
    if invocation.flags.from_env_file and (invocation.flags.from_file or invocation.flags.from_literal):
        raise Failed("from-env-file cannot be combined with from-file or from-literal")


def add_literals(invocation: Invocation, add: Add) -> None:
    for source in invocation.flags.from_literal:
        key, equals, value = source.partition("=")
        if not (key and equals):
            raise Failed(f"invalid literal source {source}, expected key=value")
        add(key, value.encode("utf-8", "surrogateescape"))


def add_files(invocation: Invocation, add: Add) -> None:
    files = invocation.io.files
    for source in invocation.flags.from_file:
        key, path = _file_source(source)
        if _is_directory(files, path):
            if "=" in source:
                raise Failed("cannot give a key name for a directory path")
            for name in files.entries(path):
                inside = posixpath.join(path, name)
                found = files.status(inside, follow=False)
                if found is not None and found.is_file:
                    add(name, _content(files, inside))
        else:
            add(key, _content(files, path))


def add_env_files(invocation: Invocation, add: Add, what: str) -> None:
    for path in invocation.flags.from_env_file:
        if _is_directory(invocation.io.files, path):
            raise Failed(f"env {what} file cannot be a directory")
        for at, line in enumerate(_content(invocation.io.files, path).split(b"\n")):
            if len(line) >= _LONGEST_LINE:  # as far as kubectl reads
                break
            if pair := env_line(line.removesuffix(b"\r"), path, at, invocation.io.environment):
                add(*pair)


def env_line(line: bytes, path: str, at: int, environment: Mapping[str, str]) -> tuple[str, bytes] | None:
    try:
        text = (line.removeprefix(_BOM) if at == 0 else line).decode().lstrip()
    except UnicodeDecodeError:
        shown = "[" + " ".join(map(str, line)) + "]"
        raise Failed(f"env file {path} contains invalid utf8 bytes at line {at + 1}: {shown}") from None
    if not text or text[0] == "#":
        return None
    key, equals, value = text.partition("=")
    if problems := names.env_var_name(key):
        raise Failed(f"{quote(key)} is not a valid key name: {';'.join(problems)}")
    # A name without a value takes that of the environment.
    return key, (value if equals else environment.get(key, "")).encode("utf-8", "surrogateescape")


def content_hash(content: Mapping[str, object]) -> str:
    """Return a hash of ten letters without vowels."""
    # Imported here because a hash is rarely needed.
    from hashlib import sha256

    digits = sha256(compact(content).encode()).hexdigest()[:10]
    return digits.translate(str.maketrans("013ae", "ghkmt"))


def _file_source(source: str) -> tuple[str, str]:
    count = source.count("=")
    if count == 0:
        return posixpath.basename(source.rstrip("/")) or ("/" if source else "."), source
    if count > 1:
        raise Failed("key names or file paths cannot contain '='")
    key, _, path = source.partition("=")
    if not key:
        raise Failed(f"key name for file path {path} missing")
    if not path:
        raise Failed(f"file path for key name {key} missing")
    return key, path


def _is_directory(files: CommandFiles, path: str) -> bool:
    try:
        found = files.status(path)
    except OSError as error:
        raise Failed(f"error reading {path}: {reason(error)}") from None
    if found is None:
        raise Failed(f"error reading {path}: no such file or directory")
    return found.is_directory


def _content(files: CommandFiles, path: str) -> bytes:
    try:
        return files.read(path)
    except OSError as error:
        raise Failed(f"open {path}: {reason(error)}") from None
