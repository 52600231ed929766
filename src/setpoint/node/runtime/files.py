"""The files that a simulated container sees: its own, and those of the volumes mounted into it."""

from __future__ import annotations

from collections.abc import Callable
from posixpath import normpath

Mounts = list[tuple[str, dict[str, str]]]

_MOST_BYTES = 1 << 20
_ALWAYS = ("/", "/tmp", "/etc", "/var", "/bin", "/dev", "/home", "/root", "/usr", "/opt", "/proc", "/sys", "/run")


class Files:
    """Names map to texts. A directory is there when something is in it, when it was made, or by nature."""

    def __init__(self, mounts: Callable[[], Mounts] = list, given: dict[str, str] | None = None) -> None:
        self._asked = mounts
        self._mounts: Mounts | None = None
        self._own = dict(given or {})
        self._directories: set[str] = set()

    def read(self, path: str) -> str | None:
        files, name = self._place(path)
        return files.get(name)

    def write(self, path: str, text: str, append: bool = False) -> bool:
        """False when there is no room."""
        if path in ("/dev/null", "/dev/stdout", "/dev/stderr"):
            return True
        files, name = self._place(path)
        if append:
            text = files.get(name, "") + text
        if len(text) > _MOST_BYTES or len(files) > 1000:
            return False
        files[name] = text
        return True

    def remove(self, path: str, recursive: bool = False) -> bool:
        files, name = self._place(path)
        found = files.pop(name, None) is not None
        if recursive:
            for inside in [each for each in files if each.startswith(name + "/")]:
                del files[inside]
                found = True
            whole = _clean(path)
            gone = {each for each in self._directories if each == whole or each.startswith(whole + "/")}
            found = found or bool(gone)
            self._directories -= gone
        return found

    def make_directory(self, path: str) -> None:
        self._directories.add(_clean(path))

    def is_file(self, path: str) -> bool:
        return self.read(path) is not None

    def is_directory(self, path: str) -> bool:
        path = _clean(path)
        if path in _ALWAYS or path in self._directories:
            return True
        return any(each.startswith(path.rstrip("/") + "/") for each in self._everything())

    def entries(self, path: str) -> list[str]:
        """The names in a directory."""
        inside = _clean(path).rstrip("/") + "/"
        names = {each[len(inside) :].partition("/")[0] for each in self._everything() if each.startswith(inside)}
        return sorted(name for name in names if name)

    def _everything(self) -> list[str]:
        mounted = [f"{where}/{name}" if name else where for where, files in self._mounted() for name in files]
        places = [where for where, _ in self._mounted()]
        return [*self._own, *mounted, *(f"{each}/" for each in sorted(self._directories)), *(f"{p}/" for p in places)]

    def _mounted(self) -> Mounts:
        if self._mounts is None:
            self._mounts = sorted(
                ((_clean(path), files) for path, files in self._asked()), key=lambda each: -len(each[0])
            )
        return self._mounts

    def _place(self, path: str) -> tuple[dict[str, str], str]:
        path = _clean(path)
        for where, files in self._mounted():
            if path == where:
                return files, ""  # a single file that is mounted itself
            if path.startswith(where + "/"):
                return files, path[len(where) + 1 :]
        return self._own, path


def _clean(path: str) -> str:
    return normpath(path if path.startswith("/") else f"/{path}").replace("//", "/")
