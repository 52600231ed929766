"""The packages of the extra [etcd], which are not always installed."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from setpoint.cluster.config import ConfigError

_MODULES: Final = {"hpack": "hpack", "protobuf": "google.protobuf"}
"""The module to import, by the name of its package."""


def check_etcd_packages(user: str) -> None:
    """Raise ConfigError if a package is missing that `user`, a flag or a command, needs."""
    for package, module in _MODULES.items():
        try:
            import_module(module)
        except ImportError:
            raise ConfigError(f"{user} needs {package}: pip install 'setpoint[etcd]'") from None
