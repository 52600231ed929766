"""Runs PostgreSQL in a Pod, as the primary or as a replica.

The operator puts this file into the cluster's ConfigMap; it needs Python with the standard library, and PostgreSQL.

A Lease names the primary: the operator sets its holder, and the holder renews it every second. An instance that holds
the Lease is promoted; all others follow it. An instance accepts writes only while it renews the Lease: a thread stops
PostgreSQL before the Lease expires, and the operator chooses another holder only afterwards. So there are never two
primaries.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

INTERVAL = 1.0
"""Seconds between two looks at the Lease."""
REQUEST_TIMEOUT = 2.0
QUERY_TIMEOUT = 3.0
RENEW_BEFORE = 0.6
"""The part of the Lease's duration after which a primary that could not renew it stops."""
SILENCE = 3.0
"""Seconds without a renewal of the Lease after which replicas report their positions."""
STREAMING_TIMEOUT = 60.0
"""Seconds after which a replica that cannot follow the primary is copied from it again."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
POSITION = "database.example.com/position"
"""The annotation of a replica without a primary: the Lease's transitions, the timeline and the last position."""
REPLICATOR = "replicator"

READY_PRIMARY = """SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
END, (SELECT timeline_id FROM pg_control_checkpoint())"""
OWN_POSITION = """SELECT (SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'),
greatest((SELECT timeline_id FROM pg_control_checkpoint()),
(SELECT min_recovery_end_timeline FROM pg_control_recovery())),
greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'"""
CREATE_REPLICATOR = f"""SET synchronous_commit TO local;
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{REPLICATOR}') THEN
    CREATE ROLE {REPLICATOR} LOGIN REPLICATION PASSWORD %s;
    GRANT EXECUTE ON FUNCTION pg_ls_dir(text, boolean, boolean), pg_stat_file(text, boolean), pg_read_binary_file(text),
      pg_read_binary_file(text, bigint, bigint, boolean) TO {REPLICATOR};
  END IF;
END $$;
CHECKPOINT;
"""


class Api:
    """The Lease of the cluster and the Pod of this instance, with the Pod's service account."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
        base = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        namespace, cluster = environment["NAMESPACE"], environment["CLUSTER"]
        self._lease = f"{base}/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{cluster}-primary"
        self._pod = f"{base}/api/v1/namespaces/{namespace}/pods/{environment['POD_NAME']}"
        self._tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def get_lease(self) -> dict[str, Any]:
        return self._request("GET", self._lease)

    def put_lease(self, lease: Mapping[str, Any]) -> None:
        """Replace the Lease. Raises HTTPError with the code 409 if it has been changed since it was read."""
        self._request("PUT", self._lease, lease, "application/json")

    def annotate_pod(self, uid: str, annotations: Mapping[str, str | None]) -> None:
        patch = {"metadata": {"uid": uid, "annotations": annotations}}
        self._request("PATCH", self._pod, patch, "application/merge-patch+json")

    def _request(self, method: str, url: str, body: Any = None, media_type: str = "") -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "User-Agent": "postgres-instance"}
        if media_type:
            headers["Content-Type"] = media_type
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT, context=self._tls) as response:
            found: dict[str, Any] = json.load(response)
        return found


class Postgres:
    """The data directory of this instance, and the server that runs on it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.name = environment["POD_NAME"]
        self.data = Path(environment["PGDATA"])
        self._new = self.data.with_name(f"{self.data.name}.new")
        self._password = environment["POSTGRES_PASSWORD"]
        self._replicator_password = environment["REPLICATION_PASSWORD"]
        self._process: subprocess.Popen[bytes] | None = None
        self._killed: subprocess.Popen[bytes] | None = None
        os.environ["PGPASSWORD"] = self._replicator_password
        os.environ["PGCONNECT_TIMEOUT"] = "2"

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def has_data(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    @property
    def ended(self) -> int | None:
        """The exit code of a server that ended by itself."""
        return self._process.poll() if self._process else None

    def initialize(self) -> None:
        """Create an empty database cluster."""
        log("creating the database cluster")
        shutil.rmtree(self._new, ignore_errors=True)
        with tempfile.NamedTemporaryFile("w") as password:
            password.write(self._password)
            password.flush()
            options = ("--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums")
            run("initdb", f"--pgdata={self._new}", f"--pwfile={password.name}", *options)
        self._new.rename(self.data)

    def copy_from(self, host: str) -> None:
        """Replace the data by a copy of the primary's."""
        log(f"copying the data of {host}")
        shutil.rmtree(self._new, ignore_errors=True)
        run("pg_basebackup", f"--pgdata={self._new}", "--checkpoint=fast", f"--dbname={connection(host)}")
        shutil.rmtree(self.data, ignore_errors=True)
        self._new.rename(self.data)

    def join(self, host: str, timeline: int) -> None:
        """Make the data of a stopped server a past state of the primary, so that it can follow."""
        if not self.has_data:
            self.copy_from(host)
        elif self._timeline() != timeline:
            log(f"rewinding to the timeline {timeline} of {host}")
            # Without it, pg_rewind can recover a server that was killed.
            (self.data / "standby.signal").unlink(missing_ok=True)
            try:
                run("pg_rewind", f"--target-pgdata={self.data}", f"--source-server={connection(host)} dbname=postgres")
            except subprocess.CalledProcessError:
                self.copy_from(host)

    def _timeline(self) -> int:
        shown = run("pg_controldata", str(self.data))
        (line,) = (line for line in shown.splitlines() if line.startswith("Latest checkpoint's TimeLineID:"))
        return int(line.rpartition(" ")[2])

    def start(self, *, follow: str | None = None) -> None:
        """Start the server: as a replica of a host, as a replica that waits (an empty host), or as it was (None)."""
        command = ["postgres", "-D", str(self.data), "-c", "config_file=/config/postgresql.conf"]
        if follow is not None:
            (self.data / "standby.signal").touch()
        if follow:
            command += ["-c", f"primary_conninfo={connection(follow)} application_name={self.name}"]
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        self.data.chmod(0o700)  # fsGroup has made it writable for the group, which PostgreSQL refuses
        self._process = subprocess.Popen(command)

    def kill(self) -> bool:
        """End the server at once, without waiting for it; return false if this was done. Another thread may call it."""
        process = self._process
        if process is None or process is self._killed:
            return False
        process.send_signal(signal.SIGQUIT)
        self._killed = process
        return True

    def stop(self) -> None:
        """Stop the server orderly; at once if it takes more than ten seconds."""
        if self._process:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(10.0)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGQUIT)
                self._process.wait()
            self._process = None

    def promote(self) -> None:
        log("promoting")
        subprocess.run(["pg_ctl", "promote", f"--pgdata={self.data}", "--no-wait"], capture_output=True)

    def query(self, statement: str, host: str = "") -> list[str] | None:
        """Return the fields of the first row; None if the server does not answer."""
        if not host and not self.running:
            return None
        where = [f"--dbname={connection(host)} dbname=postgres"] if host else ["--username=postgres"]
        command = ["psql", *where, "--no-psqlrc", "--tuples-only", "--no-align", f"--command={statement}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_TIMEOUT)
        except subprocess.TimeoutExpired:
            return None
        return done.stdout.strip().split("|") if done.returncode == 0 else None

    def in_recovery(self) -> bool | None:
        """Return whether the server is a replica; None if it does not answer."""
        found = self.query("SELECT pg_is_in_recovery()")
        return None if found is None else found[0] == "t"

    def timeline_of(self, host: str) -> int | None:
        """Return the timeline of a primary to which data can be rewound; None if it is not ready for this."""
        found = self.query(READY_PRIMARY, host)
        if found is None or not found[0] or int(found[0], 16) != int(found[1]):
            return None
        return int(found[1])

    def create_replicator(self) -> subprocess.Popen[str]:
        """Start to create the role of the replicas, and to write a checkpoint, which may take long."""
        password = "'" + self._replicator_password.replace("'", "''") + "'"
        command = ["psql", "--username=postgres", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        assert process.stdin
        process.stdin.write(CREATE_REPLICATOR % password)
        process.stdin.close()
        return process


class Instance:
    """Makes PostgreSQL what the Lease says."""

    def __init__(self, api: Api, postgres: Postgres, environment: Mapping[str, str]) -> None:
        self._api = api
        self._postgres = postgres
        self._uid = environment["POD_UID"]
        self._pods = f"{environment['CLUSTER']}-pods"
        self._identity = f"{postgres.name}_{self._uid}"
        self._is_primary = False
        self._duration = 10.0
        self._renewed = 0.0
        """When the Lease was renewed, by the monotonic clock."""
        self._following = ""
        """The holder of the Lease that the server follows."""
        self._streamed = 0.0
        """When the server was last seen to receive from the primary."""
        self._renewal = ("", 0.0)
        """The last renewal of the Lease by another instance, and when it was seen."""
        self._preparing: subprocess.Popen[str] | None = None
        self._reported = ""

    def step(self) -> None:
        """Look at the Lease and act on it once."""
        try:
            lease = self._api.get_lease()
            self._duration = float(lease["spec"].get("leaseDurationSeconds") or self._duration)
            holder = lease["spec"].get("holderIdentity") or ""
            if holder == self._identity:
                self._lead(lease)
            else:
                self._follow(holder)
                self._report(lease["spec"])
        except urllib.error.HTTPError as error:
            if error.code != 409:  # on a conflict the next step sees the new Lease
                log(f"the API server refused {error.url}: {error.code} {error.reason}")
        except OSError as error:
            log(f"the API server does not answer: {error}")
        except subprocess.CalledProcessError as error:
            log(f"{error.cmd[0]} failed: {error.stderr or error.stdout}")

    def watch_lease(self) -> None:
        """Stop a primary that has not renewed the Lease in time. Runs in a thread, whatever the others wait for."""
        while True:
            time.sleep(INTERVAL / 4)
            late = time.monotonic() - self._renewed > RENEW_BEFORE * self._duration
            if self._is_primary and late and self._postgres.kill():
                log("stopping: the Lease was not renewed")

    def _lead(self, lease: dict[str, Any]) -> None:
        postgres = self._postgres
        if not postgres.has_data:
            if lease["spec"].get("renewTime"):
                # An empty database must never take the place of one that had data.
                log("this instance shall be the primary, but its data is missing")
                return
            postgres.initialize()
        self._renew(lease)
        if not postgres.running:
            self._preparing = None
            postgres.start()
        self._is_primary = True
        self._following = ""
        in_recovery = postgres.in_recovery()
        if in_recovery:
            self._preparing = None
            postgres.promote()
        elif in_recovery is False and (self._preparing is None or self._preparing.poll()):
            self._preparing = postgres.create_replicator()
        self._annotate("")

    def _renew(self, lease: dict[str, Any], *, release: bool = False) -> None:
        began = time.monotonic()
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {**lease["spec"], "renewTime": now}
        if release:
            del spec["holderIdentity"]
        self._api.put_lease({**lease, "spec": spec})
        self._renewed = began

    def _follow(self, holder: str) -> None:
        postgres = self._postgres
        if self._is_primary:
            log(f"{holder or 'another instance'} is the primary now")
            postgres.stop()
            self._is_primary = False
        name = holder.rpartition("_")[0]
        host = f"{name}.{self._pods}" if name and name != postgres.name else ""
        behind = self._following == holder and time.monotonic() - self._streamed > STREAMING_TIMEOUT
        if host and (not postgres.running or self._following != holder or behind):
            timeline = postgres.timeline_of(host)
            if timeline is not None:
                postgres.stop()
                if behind:
                    postgres.copy_from(host)
                else:
                    postgres.join(host, timeline)
                postgres.start(follow=host)
                log(f"following {name}")
                self._following = holder
            self._streamed = time.monotonic()
        if not postgres.running and postgres.has_data:
            postgres.start(follow="")

    def _report(self, lease: Mapping[str, Any]) -> None:
        """Write the position of a replica without a primary to its Pod: it may have to become the primary."""
        renewal = f"{lease.get('holderIdentity')} {lease.get('renewTime')}"
        if renewal != self._renewal[0]:
            self._renewal = (renewal, time.monotonic())
        found = self._postgres.query(OWN_POSITION)
        if found is None:
            return
        streaming, timeline, position = found
        if streaming != "0":
            self._streamed = time.monotonic()
        # It may stream from the former primary, which is a replica now.
        silent = not lease.get("holderIdentity") or time.monotonic() - self._renewal[1] > SILENCE
        report = f"{lease.get('leaseTransitions') or 0} {timeline} {position}" if silent and position else ""
        self._annotate(report)

    def _annotate(self, report: str) -> None:
        if report != self._reported:
            self._api.annotate_pod(self._uid, {POSITION: report or None})
            self._reported = report

    def end(self) -> None:
        """Stop the server, and release the Lease, so that another instance can be the primary at once."""
        was_primary = self._is_primary
        # Replicas that are connected get everything before the server ends.
        self._postgres.stop()
        if was_primary:
            try:
                lease = self._api.get_lease()
                if lease["spec"].get("holderIdentity") == self._identity:
                    self._renew(lease, release=True)
                    log("released the Lease")
            except OSError as error:
                log(f"the Lease was not released: {error}")


def connection(host: str) -> str:
    return f"host={host} user={REPLICATOR}"


def run(*command: str) -> str:
    """Run a program to its end, and return what it prints. Raises CalledProcessError if it fails."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def log(message: str) -> None:
    sys.stderr.write(f"instance: {message}\n")


def main() -> int:
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    postgres = Postgres(os.environ)
    instance = Instance(Api(os.environ), postgres, os.environ)
    threading.Thread(target=instance.watch_lease, daemon=True).start()
    # A Pod that was deleted by force may still run beside its replacement on the same volume.
    lock = postgres.data.with_name("lock").open("w")
    while not ending.is_set():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            log("waiting: another instance uses this volume")
            ending.wait(INTERVAL)
    while not ending.is_set():
        instance.step()
        if postgres.ended is not None:
            log(f"PostgreSQL ended with {postgres.ended}")
            return 1
        ending.wait(INTERVAL)
    instance.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
