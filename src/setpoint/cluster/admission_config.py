"""The files of admission: the configuration of plugins (`--admission-control-config-file`) and directories with static
manifests of webhooks and policies, which are reloaded when they change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import orjson

from setpoint.apiserver.admission.builtin import NotInitialized
from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests
from setpoint.apiserver.config_files import (
    TEXT,
    Explicit,
    FileProblem,
    document,
    many,
    read_config,
    struct,
)
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.clock import Clock
from setpoint.meta.field import invalid
from setpoint.meta.goformat import quote
from setpoint.meta.schema import Shape, Type

log = logging.getLogger("setpoint.cluster")

_PLUGIN = struct(
    "v1.AdmissionPluginConfiguration",
    name=TEXT,
    path=TEXT,
    configuration=Explicit(Type(Shape.ANY, go="runtime.Unknown")),
)
_CONFIGURATION = document("v1.AdmissionConfiguration", plugins=many(_PLUGIN))
_KINDS = {
    ("apiserver.config.k8s.io/v1", "AdmissionConfiguration"): _CONFIGURATION,
    ("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration"): _CONFIGURATION,
}
_LEGACY_KEYS = {"podNodeSelectorPluginConfig", "imagePolicy"}
"""Keys that identify a configuration file without a kind, which older versions used."""
_LEGACY_PLUGINS = ("ImagePolicyWebhook", "PodNodeSelector")
"""The plugins that a file without a kind configures."""
_POLL_INTERVAL = 1.0
_SUFFIXES = (".yaml", ".yml", ".json")
_Background = list[Callable[[], Coroutine[Any, Any, None]]]
_Files = list[tuple[str, bytes]]


class PluginDocuments:
    """The configuration of each plugin, by name. A plugin's separate file is read when the plugin requests it."""

    def __init__(self, plugins: Mapping[str, dict[str, Any]], directory: Path) -> None:
        self._plugins = plugins
        self._directory = directory

    def get(self, plugin: str) -> bytes | None:
        """Return the configuration of the plugin; None if it has none. Raises FileProblem."""
        entry = self._plugins.get(plugin, {})
        if entry.get("configuration") is not None:
            return orjson.dumps(entry["configuration"])
        return _read_file(self._directory / entry["path"], "") if entry.get("path") else None


def plugin_documents(path: str) -> PluginDocuments:
    """Read the configuration file. Of several entries for one plugin the first counts. Raises FileProblem."""
    file = Path(path)
    data = _read_file(file, f"unable to read admission control configuration from {quote(path)} ")
    if _is_legacy(data):
        return PluginDocuments({name: {"path": file.name} for name in _LEGACY_PLUGINS}, file.parent)
    found: dict[str, dict[str, Any]] = {}
    for plugin in read_config(data, _KINDS).get("plugins") or ():
        found.setdefault(plugin.get("name", ""), plugin)
    return PluginDocuments(found, file.parent)


def _read_file(path: Path, prefix: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        why = f"open {path}: {(error.strerror or '').lower()}"
        raise FileProblem(f"{prefix}[{why}]" if prefix else why) from None


def _is_legacy(data: bytes) -> bool:
    """Return whether the file has one of the legacy keys and no known kind."""
    try:
        value = parse_yaml(data)[0]
    except BodyError:
        return False
    known = isinstance(value, dict) and (value.get("apiVersion"), value.get("kind")) in _KINDS
    return isinstance(value, dict) and not known and not _LEGACY_KEYS.isdisjoint(value)


def static_manifests(
    background: _Background, clock: Clock, what: str, directory: str, plurals: Sequence[str]
) -> StaticManifests:
    """Return the manifests in a directory. While the server runs, valid changes take effect. Raises FileProblem or
    NotInitialized."""
    try:
        is_directory = S_ISDIR(Path(directory).stat().st_mode)
    except OSError as error:
        why = f"unable to read: stat {directory}: {(error.strerror or '').lower()}"
        raise FileProblem(invalid("staticManifestsDir", directory, why).message()) from None
    if not is_directory:
        raise FileProblem(invalid("staticManifestsDir", directory, "must be a directory").message())
    watched = ManifestDirectory(directory, StaticManifests(plurals, clock), clock)
    try:
        watched.load()
    except FileProblem as problem:
        text = f"failed to load static {what} manifests from {quote(directory)}: {problem}"
        raise NotInitialized(text) from None
    background.append(watched.run)
    return watched.manifests


class ManifestDirectory:
    """Reads the manifests of a directory every second and applies changes."""

    def __init__(self, directory: str, manifests: StaticManifests, clock: Clock) -> None:
        self.manifests = manifests
        self._directory = Path(directory)
        self._clock = clock
        self._known: _Files | None = None
        self._reported = ""
        """The last error, which is logged once; empty if the manifests are valid."""

    def load(self) -> None:
        """Apply the files if they have changed. Raises FileProblem, and then changes nothing."""
        files = self._read()
        if files != self._known:
            self.manifests.load(files)
            self._known = files

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_POLL_INTERVAL)
            self.check()

    def check(self) -> None:
        """Load once, and log the outcome if it is new."""
        before = self.manifests.revision
        try:
            self.load()
        except FileProblem as problem:
            if str(problem) != self._reported:
                self._reported = str(problem)
                log.error("reloading admission manifest config: %s", problem)
            return
        self._reported = ""
        if self.manifests.revision != before:
            log.info("reloaded admission manifest config from %s", self._directory)

    def _read(self) -> _Files:
        directory = self._directory
        try:
            paths = sorted(
                path for path in directory.iterdir() if path.suffix.lower() in _SUFFIXES and not path.is_dir()
            )
        except OSError as error:
            why = f"open {directory}: {(error.strerror or '').lower()}"
            raise FileProblem(f"failed to read manifest directory {quote(str(directory))}: {why}") from None
        try:
            return [(str(path), path.read_bytes()) for path in paths]
        except OSError as error:
            why = f"open {error.filename}: {(error.strerror or '').lower()}"
            raise FileProblem(f"failed to read file {quote(str(error.filename))}: {why}") from None
