"""The PostgreSQL operator with real PostgreSQL: replication, loss of the primary, backups. The tests run in this order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubectl_runner import until
from real_cluster import real_cluster
from real_examples import BUILD, OPERATOR, ROOT, Database, commands, running_operator, served_images
from real_machine import RealMachine

pytestmark = pytest.mark.real

MANIFEST = "examples/postgres_operator/production-db.yaml"
PODS = ("production-db-0", "production-db-1")
ROWS = "SELECT string_agg(text, ' ' ORDER BY text) FROM notes"
IS_REPLICA = "SELECT pg_is_in_recovery()"


@pytest.fixture(scope="module")
def database(machine: RealMachine, example_images: Path) -> Iterator[Database]:
    """The cluster of the manifest, made by the commands of the readme."""
    given = commands("postgres_operator")
    assert {BUILD, OPERATOR, f"setpoint apply -f {MANIFEST}"} <= set(given)
    with served_images(machine, example_images), real_cluster(machine) as cluster, running_operator(cluster):
        kubectl = cluster.kubectl()
        kubectl("apply", "-f", str(ROOT / MANIFEST))
        found = Database(kubectl, "production-db")
        until(lambda: found.status, 30)
        found.wait_ready()
        yield found


def replica_of(primary: str) -> str:
    (found,) = (pod for pod in PODS if pod != primary)
    return found


def add(database: Database, text: str, pod: str) -> None:
    """Write a row through the Service of the primary. It may be tried twice."""
    statement = f"INSERT INTO notes VALUES ('{text}') ON CONFLICT DO NOTHING"
    until(lambda: database.write(pod, statement) == "", 60)


def both_have(database: Database, rows: str) -> None:
    """Wait until both instances have these rows, one as the primary and one as its replica."""
    until(lambda: {database.read(pod, ROWS) for pod in PODS} == {rows}, 60)
    until(lambda: {database.read(pod, IS_REPLICA) for pod in PODS} == {"f", "t"}, 60)
    database.wait_ready()


def test_replicas_follow_the_primary(database: Database) -> None:
    replica = replica_of(database.primary)
    table = "CREATE TABLE IF NOT EXISTS notes (text text PRIMARY KEY)"
    until(lambda: database.write(replica, table) == "")
    add(database, "a", replica)
    both_have(database, "a")
    replica = replica_of(database.primary)
    assert database.read(replica, IS_REPLICA) == "t"
    assert database.read(replica, "INSERT INTO notes VALUES ('never')") is None, "replicas are read-only"
    assert database.primary in database.kubectl("get", "postgresclusters")


def test_data_survives_a_killed_primary(database: Database) -> None:
    """The Pod is gone at once. Its replacement has the volume, and either instance may become the primary."""
    primary = database.primary
    old = database.kubectl.get("pod", primary)["metadata"]["uid"]
    database.kubectl("delete", "pod", primary, "--force", "--grace-period=0")
    add(database, "b", replica_of(primary))
    until(lambda: database.kubectl.get("pod", primary)["metadata"]["uid"] != old)
    both_have(database, "a b")


def test_a_primary_that_ends_in_order_is_replaced_at_once(database: Database) -> None:
    primary = database.primary
    replica = replica_of(primary)
    database.kubectl("delete", "pod", primary, "--wait=false")
    until(lambda: database.primary == replica, 60)
    add(database, "c", replica)
    both_have(database, "a b c")


def test_backups_have_the_data(database: Database, machine: RealMachine) -> None:
    kubectl = database.kubectl
    assert kubectl.get("cronjob", "production-db-backup")["spec"]["schedule"] == "0 2 * * *"
    kubectl("create", "job", "now", "--from=cronjob/production-db-backup")
    kubectl("wait", "job/now", "--for=condition=Complete", "--timeout=50s")
    volumes = machine.directory / "node" / "local-volumes"
    (backup,) = volumes.rglob("*.sql")
    assert "COPY public.notes (text) FROM stdin;\na\nb\nc\n" in backup.read_text()
    # A last backup is made before the cluster is deleted, and backups stay.
    kubectl("delete", "postgrescluster", "production-db", "--timeout=50s")
    assert len(list(volumes.rglob("*.sql"))) == 2
    until(lambda: [each["metadata"]["name"] for each in kubectl.get("pvc")["items"]] == ["production-db-backups"], 60)
