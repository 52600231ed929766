"""The file of `--admission-control-config-file`: what each plugin is told, in it or in a file of the plugin's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from setpoint.apiserver.config_files import TEXT, FileProblem, document, many, read_config, struct
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.goformat import quote
from setpoint.meta.schema import Shape, Type

_PLUGIN = struct(
    "v1.AdmissionPluginConfiguration", name=TEXT, path=TEXT, configuration=Type(Shape.ANY, go="runtime.Unknown")
)
_CONFIGURATION = document("v1.AdmissionConfiguration", plugins=many(_PLUGIN))
_KINDS = {
    ("apiserver.config.k8s.io/v1", "AdmissionConfiguration"): _CONFIGURATION,
    ("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration"): _CONFIGURATION,
}
_WITHOUT_KIND = {"podNodeSelectorPluginConfig": "PodNodeSelector", "imagePolicy": "ImagePolicyWebhook"}
"""By the one key of files that are older than kinds: whom they are for."""
_CONFIGURED = frozenset({
    "EventRateLimit", "ImagePolicyWebhook", "PodNodeSelector", "PodSecurity", "PodTolerationRestriction",
    "ResourceQuota",
})  # fmt: skip


def plugin_documents(path: str) -> Mapping[str, bytes]:
    """By the plugin's name. Of several for one plugin the first counts. Raises FileProblem."""
    data = _read(Path(path), f"unable to read admission control configuration from {quote(path)} ")
    plain = _of_old_form(data)
    if plain:
        return {plain: data}
    found: dict[str, bytes] = {}
    for plugin in read_config(data, _KINDS).get("plugins") or ():
        name = plugin.get("name", "")
        if name in found:
            continue
        given = _given(plugin, Path(path).parent)
        if given is None:
            continue
        if name not in _CONFIGURED:
            raise FileProblem(f"{name or 'a plugin without a name'} takes no configuration here")
        found[name] = given
    return found


def _given(plugin: dict[str, Any], directory: Path) -> bytes | None:
    if plugin.get("configuration") is not None:
        return orjson.dumps(plugin["configuration"])
    if plugin.get("path"):
        return _read(directory / plugin["path"], "")
    return None


def _read(path: Path, saying: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        why = f"open {path}: {(error.strerror or '').lower()}"
        raise FileProblem(f"{saying}[{why}]" if saying else why) from None


def _of_old_form(data: bytes) -> str:
    try:
        value = parse_yaml(data)[0]
    except BodyError:
        return ""
    if not isinstance(value, dict) or "kind" in value:
        return ""
    return next((name for key, name in _WITHOUT_KIND.items() if key in value), "")
