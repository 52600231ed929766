"""An operator that keeps PostgreSQL clusters: `python -m examples.postgres_operator`."""

from .kind import PostgresCluster
from .operator import postgres_operator

__all__ = ["PostgresCluster", "postgres_operator"]
