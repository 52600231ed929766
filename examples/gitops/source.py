"""Where manifests come from: a directory, or a Git repository through the `git` command."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .kind import SyncSpec

_MOST_FILES = 5_000
_MOST_BYTES = 64 << 20
_PATIENCE = 60.0
"""Seconds for one git command."""


class SourceProblem(Exception):
    """The source cannot be had; the message says why."""


@dataclass(frozen=True)
class Snapshot:
    """All manifests of one moment."""

    revision: str
    files: dict[str, bytes]


class Sources:
    """Directories are looked for below `root` and nowhere else; `cache` holds copies of repositories."""

    def __init__(self, root: Path, cache: Path) -> None:
        self._root = root.resolve()
        self._cache = cache

    async def fetch(self, key: str, spec: SyncSpec) -> Snapshot:
        """`key` tells one Sync's copy from another's. Raises SourceProblem."""
        try:
            if spec.repo is not None:
                return await asyncio.to_thread(self._repository, key, spec, spec.repo)
            return await asyncio.to_thread(self._directory, spec.path)
        except OSError as error:
            raise SourceProblem(str(error)) from None

    def forget(self, key: str) -> None:
        shutil.rmtree(self._cache / key, ignore_errors=True)

    # -- directories --------------------------------------------------------------------------------------------------

    def _directory(self, path: str) -> Snapshot:
        top = (self._root / path).resolve()
        if not top.is_relative_to(self._root) or not top.is_dir():
            raise SourceProblem(f"there is no directory {path} below {self._root}")
        files = Files()
        for file in sorted(top.rglob("*")):
            # A link that leads out of the root is not followed.
            if file.is_file() and file.resolve().is_relative_to(self._root):
                name = file.relative_to(top).as_posix()
                files.add(name, file.stat().st_size, file.read_bytes)
        return Snapshot(f"sha256:{files.digest()}", files.found)

    # -- repositories -------------------------------------------------------------------------------------------------

    def _repository(self, key: str, spec: SyncSpec, repo: str) -> Snapshot:
        copy = self._cache / key
        copy.mkdir(parents=True, exist_ok=True)
        _git(copy, "init", "--quiet", "--bare")
        _git(copy, "fetch", "--quiet", "--no-tags", "--", repo, f"+refs/heads/{spec.branch}:refs/sync/source")
        with tempfile.TemporaryFile(dir=copy) as output:
            _git(copy, "rev-parse", "--verify", f"{spec.revision or 'refs/sync/source'}^{{commit}}", into=output)
            commit = output.read().decode().strip()
        inside = Path(spec.path).as_posix().strip("/")
        files = Files()
        with tempfile.TemporaryFile(dir=copy) as output:
            _git(copy, "archive", "--format=tar", commit if inside == "." else f"{commit}:{inside}", into=output)
            with tarfile.open(fileobj=output) as archive:
                for member in archive:
                    data = archive.extractfile(member) if member.isfile() else None
                    if data is not None:
                        files.add(member.name, member.size, data.read)
        return Snapshot(commit, files.found)


class Files:
    """Manifests, and no more of them than can be held."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        self._bytes = 0

    def add(self, name: str, size: int, read: Callable[[], bytes]) -> None:
        """Raises SourceProblem."""
        hidden = any(part.startswith(".") for part in name.split("/"))
        if hidden or not name.endswith((".yaml", ".yml", ".json")):
            return
        self._bytes += size
        if len(self.found) >= _MOST_FILES or self._bytes > _MOST_BYTES:
            raise SourceProblem(f"there are more than {_MOST_FILES} files, or more than {_MOST_BYTES >> 20} MiB")
        self.found[name] = read()

    def digest(self) -> str:
        found = hashlib.sha256()
        for name, data in self.found.items():
            found.update(f"{len(name)} {name} {len(data)} ".encode() + data)
        return found.hexdigest()[:16]


def _git(directory: Path, *arguments: str, into: IO[bytes] | int = subprocess.DEVNULL) -> None:
    """Raises SourceProblem with what git says."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "file:http:https:ssh:git"}
    command = ["git", "--git-dir", ".", *arguments]
    try:
        subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=into,
            stderr=subprocess.PIPE,
            timeout=_PATIENCE,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise SourceProblem(f"git {arguments[0]}: {said or error}") from None
    except subprocess.TimeoutExpired:
        raise SourceProblem(f"git {arguments[0]}: no end after {_PATIENCE:.0f} s") from None
    if not isinstance(into, int):
        into.seek(0)
