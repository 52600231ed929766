"""Secrets without their values, for texts that people read over each other's shoulders."""

from __future__ import annotations

from typing import Any

from setpoint.meta.objects import Obj, ObjView

SECRETS = "core/secrets/"
"""The prefix of the keys of Secrets in the store."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class SecretMask:
    """Numbers the values of Secrets: equal values have equal numbers, so that changes are visible."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def masked(self, secret: ObjView) -> Obj:
        """Return a Secret whose values are numbered instead of shown."""
        masked = dict(secret)
        if data := secret.get("data"):
            masked["data"] = {name: self._hidden(value) for name, value in data.items()}
        return self.without_copy(masked)

    def without_copy(self, secret: ObjView) -> Obj:
        """Return a Secret with a number instead of the annotation that contains a copy of it."""
        metadata = secret.get("metadata") or {}
        annotations = metadata.get("annotations") or {}
        if LAST_APPLIED not in annotations:
            return dict(secret)
        shown = {**annotations, LAST_APPLIED: self._hidden(annotations[LAST_APPLIED])}
        return {**secret, "metadata": {**metadata, "annotations": shown}}

    def _hidden(self, value: Any) -> str:
        return f"<hidden-{self._numbers.setdefault(str(value), len(self._numbers) + 1)}>"
