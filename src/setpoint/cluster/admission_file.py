"""The file of `--admission-control-config-file`: what each plugin is told, in it or in a file of the plugin's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from setpoint.apiserver.config_files import TEXT, FileProblem, Given, document, many, read_config, struct
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.goformat import quote
from setpoint.meta.schema import Shape, Type

_PLUGIN = struct(
    "v1.AdmissionPluginConfiguration", name=TEXT, path=TEXT, configuration=Given(Type(Shape.ANY, go="runtime.Unknown"))
)
_CONFIGURATION = document("v1.AdmissionConfiguration", plugins=many(_PLUGIN))
_KINDS = {
    ("apiserver.config.k8s.io/v1", "AdmissionConfiguration"): _CONFIGURATION,
    ("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration"): _CONFIGURATION,
}
_WITHOUT_KIND = {"podNodeSelectorPluginConfig", "imagePolicy"}
"""By these keys files are known that are older than kinds."""
_THEIRS = ("ImagePolicyWebhook", "PodNodeSelector")
"""Whom such a file is for, whichever key it has."""


class PluginDocuments:
    """By the plugin's name; a file that a plugin has of its own is read when the plugin asks for it, and not before."""

    def __init__(self, plugins: Mapping[str, dict[str, Any]], directory: Path) -> None:
        self._plugins = plugins
        self._directory = directory

    def get(self, plugin: str) -> bytes | None:
        """Raises FileProblem."""
        told = self._plugins.get(plugin, {})
        if told.get("configuration") is not None:
            return orjson.dumps(told["configuration"])
        return _read(self._directory / told["path"], "") if told.get("path") else None


def plugin_documents(path: str) -> PluginDocuments:
    """Of several for one plugin the first counts. Raises FileProblem."""
    file = Path(path)
    data = _read(file, f"unable to read admission control configuration from {quote(path)} ")
    if _is_of_old_form(data):
        return PluginDocuments({name: {"path": file.name} for name in _THEIRS}, file.parent)
    found: dict[str, dict[str, Any]] = {}
    for plugin in read_config(data, _KINDS).get("plugins") or ():
        found.setdefault(plugin.get("name", ""), plugin)
    return PluginDocuments(found, file.parent)


def _read(path: Path, saying: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        why = f"open {path}: {(error.strerror or '').lower()}"
        raise FileProblem(f"{saying}[{why}]" if saying else why) from None


def _is_of_old_form(data: bytes) -> bool:
    """One of its keys, and no kind that means anything."""
    try:
        value = parse_yaml(data)[0]
    except BodyError:
        return False
    known = isinstance(value, dict) and (value.get("apiVersion"), value.get("kind")) in _KINDS
    return isinstance(value, dict) and not known and not _WITHOUT_KIND.isdisjoint(value)
