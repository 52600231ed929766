"""Choose the cluster to act on: one rule for the command line, the components and operators.

1. An explicit choice wins: `--kubeconfig`, `--context`, `--cluster`, `--server`, or `$KUBECONFIG`.
2. Else it is the cluster of this directory, if there is one: a `.setpoint` here or in a parent directory. It is the
   choice whether it runs or not: a command that was meant for it must never reach another cluster instead.
3. Else it is the current context of `~/.kube/config`.
4. Else it is the cluster of the Pod that this runs in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from setpoint.client.kubeconfig import Access, Kubeconfig, KubeconfigError, in_cluster

DATA_DIRECTORY = ".setpoint"
ADMIN = "admin.kubeconfig"
"""File name of the administrator's kubeconfig in a cluster's data directory."""
DIRECTORY, DEFAULT_FILE = "directory", "usual file"
"""Values of `Choice.how` if no flag or variable decided."""
_BY_FILE = ("--kubeconfig", "KUBECONFIG", "--data-dir")
"""Values of `Choice.how` that name a kubeconfig explicitly, so that its location needs no check."""


class ClusterFlags(NamedTuple):
    """The values of the connection flags; empty for those that are not set."""

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    server: str = ""


class Choice(NamedTuple):
    how: str
    """The flag or variable that decided, or `DIRECTORY` or `DEFAULT_FILE`."""
    paths: tuple[Path, ...] = ()
    """The kubeconfig files; for every setting and entry, the first file that has it decides."""
    directory: Path | None = None
    """The data directory of the chosen cluster; None if it is not the cluster of this directory."""
    skipped: Path | None = None
    """The data directory of this directory's cluster if another cluster was chosen; otherwise None."""

    @property
    def explicit(self) -> bool:
        return self.how not in (DIRECTORY, DEFAULT_FILE)


def data_directory(start: Path, home: Path | None) -> Path | None:
    """Return the data directory of the cluster of `start`: in it, or in the nearest parent that has one; None if there
    is none.

    A cluster in the home directory applies to the home directory alone: a forgotten experiment there must not become
    the cluster of every project below it.
    """
    start = start.absolute()
    for folder in (start, *start.parents):
        if folder == home and folder != start:
            return None
        if os.path.isdir(folder / DATA_DIRECTORY):  # it does not exist, or this user cannot see it
            return folder / DATA_DIRECTORY
    return None


def choose(wanted: ClusterFlags, environment: Mapping[str, str], home: Path | None, start: Path) -> Choice:
    """Apply the rule. Raises KubeconfigError if the files that it must look into cannot be read."""
    local = data_directory(start, home)
    listed = tuple(Path(path) for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path)
    if wanted.kubeconfig:
        return _chosen_by_file("--kubeconfig", (Path(wanted.kubeconfig),), local)
    if listed:
        return _chosen_by_file("KUBECONFIG", listed, local)
    usual = (home / ".kube" / "config",) if home is not None else ()
    named = "--context" if wanted.context else "--cluster" if wanted.cluster else ""
    if local is None:
        return Choice(named or ("--server" if wanted.server else DEFAULT_FILE), usual)
    own = (local / ADMIN,)
    if named:
        if _has(Kubeconfig.load(usual), wanted) or not _has(Kubeconfig.load(own), wanted):
            return Choice(named, (*usual, *own), skipped=local)
        return Choice(named, (*own, *usual), local)
    if wanted.server:
        if _address(wanted.server) not in {_address(one.get("server", "")) for one in _clusters(own)}:
            return Choice("--server", usual, skipped=local)
        return Choice("--server", own, local)
    return Choice(DIRECTORY, (*own, *usual) if wanted.user else own, local)


def access(choice: Choice, wanted: ClusterFlags, environment: Mapping[str, str]) -> Access:
    """Return how to connect to the chosen cluster, and with which identity. Raise KubeconfigError."""
    context = wanted.context
    if choice.how not in _BY_FILE:
        if choice.directory is not None:
            current = _current_context(choice.directory, choice.paths[0])
            context = context or current
        elif choice.skipped is not None and choice.skipped / ADMIN in choice.paths:
            _load_trusted(choice.skipped, choice.skipped / ADMIN)
    found = Kubeconfig.load(choice.paths, must_exist=bool(wanted.kubeconfig))
    if not (found.contexts or found.clusters or wanted.kubeconfig):
        if "KUBERNETES_SERVICE_HOST" in environment and not any(wanted):
            return in_cluster(environment)
        if not wanted.server:
            paths = " or ".join(str(path) for path in choice.paths)
            raise KubeconfigError(
                "no cluster to connect to was found: "
                + (f"no kubeconfig at {paths}, and " if paths else "")
                + f"no cluster of `setpoint up` in {DATA_DIRECTORY}.\n"
                + "Start a cluster with `setpoint up`, or set --kubeconfig or KUBECONFIG."
            )
    return found.access(context=context, cluster=wanted.cluster, user=wanted.user, server=wanted.server)


def find_access(
    kubeconfig: str = "",
    context: str = "",
    *,
    environment: Mapping[str, str] = os.environ,
    home: Path | None = None,
    start: Path | None = None,
    part: str = "",
) -> Access:
    """Return how to connect to the cluster that the rule chooses, for an operator or a `part` of a control plane.

    See `choose_for`. Raise KubeconfigError.
    """
    wanted = ClusterFlags(kubeconfig, context)
    return access(choose_for(part, wanted, environment, home, start), wanted, environment)


def choose_for(
    part: str,
    wanted: ClusterFlags,
    environment: Mapping[str, str] = os.environ,
    home: Path | None = None,
    start: Path | None = None,
) -> Choice:
    """Apply the rule for a process without our command line; `part` is empty for operators.

    A component of a control plane ignores the usual file: controllers or nodes must never join the cluster that the
    user's kubectl happens to use. In a cluster of this directory it uses the kubeconfig that was created for it. Raise
    KubeconfigError.
    """
    choice = choose(wanted, environment, home or _home(), start or Path.cwd())
    if part and choice.how == DEFAULT_FILE:
        return choice._replace(paths=())
    if part and choice.how == DIRECTORY and choice.directory is not None:
        own = choice.directory / f"{part}.kubeconfig"
        return choice._replace(paths=(own if own.exists() else choice.paths[0],))
    return choice


def _chosen_by_file(how: str, paths: tuple[Path, ...], local: Path | None) -> Choice:
    """Return a choice by file, which may still be the cluster of this directory."""
    same = local is not None and len(paths) == 1 and paths[0].absolute().parent == local
    return Choice(how, paths, local if same else None, None if same else local)


def _current_context(directory: Path, path: Path) -> str:
    """Return the current context of the kubeconfig that `setpoint up` wrote. Raises KubeconfigError."""
    if not path.exists():
        raise KubeconfigError(
            f"the cluster of this directory ({display_path(directory)}) was never started: `setpoint up` starts it. "
            "Use --context or --kubeconfig for another cluster."
        )
    current = _load_trusted(directory, path).current_context
    if not current:
        raise KubeconfigError(f"{path} has no current context: `setpoint up` writes it anew")
    return current


def _load_trusted(directory: Path, path: Path) -> Kubeconfig:
    """Return the content of a kubeconfig that was found, not named by the user. Raise KubeconfigError if it is not
    safe.

    It must be owned by the user and must not run programs. Otherwise a harmless command in a directory that another
    user prepared would act on a cluster of their choice, or run their program.
    """
    owners = {os.lstat(directory).st_uid, os.stat(directory).st_uid, os.stat(path).st_uid} if path.exists() else set()
    if owners - {os.geteuid()}:
        raise KubeconfigError(f"{path} belongs to another user: use --kubeconfig {path} if you trust it")
    found = Kubeconfig.load([path])
    if any(user.get("exec") for user in found.users.values()):
        raise KubeconfigError(f"{path} runs a program to get credentials: use --kubeconfig {path} if you trust it")
    return found


def display_path(directory: Path) -> str:
    """Return a data directory in the form a user would type."""
    return directory.name if directory.parent == Path.cwd() else str(directory)


def _has(found: Kubeconfig, wanted: ClusterFlags) -> bool:
    return wanted.context in found.contexts if wanted.context else wanted.cluster in found.clusters


def _clusters(paths: tuple[Path, ...]) -> list[dict[str, str]]:
    return list(Kubeconfig.load(paths).clusters.values())


def _address(server: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(server if "://" in server else f"//{server}")
        return parts.hostname or "", parts.port
    except ValueError:
        return server, None


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None  # a user without an entry in the user database, as in containers
