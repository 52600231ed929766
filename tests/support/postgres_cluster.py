"""The custom kind of the stories: a PostgreSQL cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from setpoint.meta.body import parse_yaml

MANIFEST = Path(__file__).with_name("postgres_cluster_crd.yaml")
KIND = ("db.example.com/v1", "PostgresCluster")


def definition() -> dict[str, Any]:
    found, _ = parse_yaml(MANIFEST.read_bytes())
    return dict(found)


def postgres(name: str = "orders", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": KIND[0],
        "kind": KIND[1],
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"engineVersion": "16", **spec},
    }
