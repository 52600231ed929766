"""The page of a real `setpoint up`: where its link appears, how it lets a browser in, and how it puts it out."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from page_client import enter, open_tab, page_request, redeem
from page_cluster import PageCluster

LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/#([a-z2-7]{26})")
SETPOINT = [sys.executable, "-m", "setpoint"]


def setpoint(
    directory: Path, *words: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SETPOINT, *words], cwd=directory, env={**os.environ, **(environment or {})}, capture_output=True, text=True
    )


def command_lines() -> dict[Path, bytes]:
    """The arguments of all processes of this machine."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found[path] = path.read_bytes()
    return found


@contextmanager
def on_a_terminal(directory: Path, *words: str, until: str = "") -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a command on a terminal; yield what it has printed when it ends, or when `until` appears."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*SETPOINT, *words], cwd=directory, stdout=theirs, stderr=theirs, stdin=theirs)
    os.close(theirs)
    printed, deadline = "", time.monotonic() + 30
    try:
        # Reading fails when the process has ended and the terminal is closed.
        with suppress(OSError):
            while time.monotonic() < deadline and not (until and until in printed):
                if select.select([ours], [], [], 0.1)[0]:
                    printed += os.read(ours, 4096).decode()
        yield process, printed.replace("\r\n", "\n")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "index.html").write_text("<!doctype html><title>Setpoint</title>")
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[PageCluster]:
    """A cluster that all tests of this file share."""
    audit = ("--audit-log-path", "audit.log", "--audit-policy-file", "policy.yaml")
    directory = tmp_path_factory.mktemp("cluster")
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "RequestResponse"}]}
    (directory / "policy.yaml").write_text(json.dumps(policy))
    found = PageCluster(directory, files, "--nodes", "1", "--store", "sqlite", *audit)
    found.start()
    yield found
    found.stop()


def test_a_terminal_shows_a_link_that_works_once(tmp_path: Path, files: Path) -> None:
    flags = ("--nodes", "0", "--store", "memory", "--port", "0", "--page-port", "0", "--page-files", str(files))
    with on_a_terminal(tmp_path, "up", *flags, until="Ctrl-C stops it") as (process, printed):
        found = LINK.search(printed)
        assert found is not None, printed
        assert f"See it work:  {found[0]}\n" in printed
        assert not (tmp_path / ".setpoint" / "page").exists(), "the link is shown, so it is not written"
        assert enter(found[0])
        status, refusal = redeem(found[0])
        assert (status, refusal["message"]) == (401, "This link was used already. `setpoint page` prints a new one.")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_a_background_cluster_shows_its_link_but_does_not_log_it(tmp_path: Path, files: Path) -> None:
    """Its process has no terminal, so the link goes through a file that only its owner may read."""
    flags = ("--nodes", "0", "--store", "memory", "--port", "0", "--page-files", str(files))
    with socket.socket() as taken:
        # The usual port may be used by another test; a port that is given and in use is an error.
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = setpoint(tmp_path, "up", "--detach", *flags, "--page-port", str(port))
        assert refused.returncode == 1 and f"the page cannot use port {port}" in refused.stderr
    with on_a_terminal(tmp_path, "up", "--detach", *flags) as (process, printed):
        assert process.wait(10) == 0, printed
    try:
        found = LINK.search(printed)
        assert found is not None, printed
        if found[1] != "6444":
            assert f"Another program uses port 6444, so the page is on port {found[1]}." in printed
        file = tmp_path / ".setpoint" / "page"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.read_text() == f"{found[0]}\n"
        assert found[2] not in (tmp_path / ".setpoint" / "up.log").read_text()
        again = setpoint(tmp_path, "page")
        fresh = LINK.fullmatch(again.stdout.strip())
        assert fresh is not None and fresh[2] != found[2], again
        assert enter(found[0]) and enter(fresh[0])
        assert setpoint(tmp_path, "page", "--revoke").stdout.startswith("2 sessions ended")
    finally:
        assert setpoint(tmp_path, "down").returncode == 0
    assert not file.exists()
    stopped = setpoint(tmp_path, "page")
    assert stopped.returncode == 1 and "is not running" in stopped.stderr, stopped


def test_without_a_terminal_the_link_is_not_printed(cluster: PageCluster) -> None:
    file = cluster.data_directory / "page"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and LINK.fullmatch(file.read_text().strip())


async def test_codes_and_keys_appear_nowhere(cluster: PageCluster) -> None:
    """Neither in logs, nor in the audit log at its highest level, nor in the history, nor among the arguments of
    processes."""
    link = cluster.new_link()
    key = enter(link)
    async with open_tab(cluster.origin, key) as (tab, _):
        found = await tab.request("/api/v1/namespaces/default/configmaps", "POST", body={"metadata": {"name": "seen"}})
        assert found["status"] == 201
        fresh = setpoint(cluster.data_directory.parent, "page", "--data-dir", "data").stdout.strip()
        writes = await tab.request("/setpoint/v1/writes", query="limit=500")
        assert writes["status"] == 200 and "seen" in str(writes)
    secrets = [each.partition("#")[2] for each in (link, fresh)] + [key]
    texts = {path: path.read_bytes() for path in cluster.data_directory.parent.rglob("*") if path.is_file()}
    texts |= command_lines()
    texts[Path("history")] = str(writes).encode()
    audit = texts[cluster.data_directory.parent / "audit.log"].decode()
    assert "/setpoint/v1/page/codes" in audit and "setpoint-page/" in audit and "(session " in audit
    first_link = cluster.data_directory / "page"
    found_in = [str(path) for path, text in texts.items() for secret in secrets if secret.encode() in text]
    assert [path for path in found_in if path != str(first_link)] == []


async def test_revocation_puts_open_tabs_out_within_a_second(cluster: PageCluster) -> None:
    key = enter(cluster.new_link())
    async with open_tab(cluster.origin, key) as (tab, _):
        began = time.monotonic()
        cluster.revoke()
        assert await tab.receive(1.0) is None
        assert time.monotonic() - began < 1.0
    status, _, _ = page_request(cluster.origin, "GET", "/page/v1/session", {"Authorization": f"Bearer {key}"})
    assert status == 401


async def test_a_session_outlives_a_restart(cluster: PageCluster) -> None:
    key = enter(cluster.new_link())
    old = cluster.new_link()
    sessions = cluster.data_directory / "page-sessions.json"
    assert stat.S_IMODE(sessions.stat().st_mode) == 0o600
    async with open_tab(cluster.origin, key) as (tab, _):
        cluster.stop()
        assert await tab.receive() is None
    cluster.start()
    async with open_tab(cluster.origin, key) as (tab, hello):
        assert hello["user"] == "kubernetes-admin"
        assert (await tab.request("/api/v1/nodes"))["status"] == 200
    assert redeem(old)[0] == 401, "a link does not outlive it"


def test_links_are_for_administrators_alone(cluster: PageCluster) -> None:
    """A role that allows every path does not allow to act as an administrator."""
    cluster.api(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {"metadata": {"name": "all-paths"}, "rules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}]},
    )
    cluster.api(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "all-paths"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all-paths"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "someone"}],
        },
    )
    someone = ("--kubeconfig", "data/admin.kubeconfig", "--as", "someone")
    directory = cluster.data_directory.parent
    allowed = setpoint(directory, *someone, "get", "--raw", "/setpoint/v1/forks")
    assert allowed.returncode == 0, allowed.stderr
    (directory / "empty.json").write_text("{}")
    for words in (
        ("create", "--raw", "/setpoint/v1/page/codes", "-f", "empty.json"),
        ("delete", "--raw", "/setpoint/v1/page/sessions"),
    ):
        refused = setpoint(directory, *someone, *words)
        assert refused.returncode == 1 and "only members of system:masters" in refused.stderr, refused


def test_a_browser_is_not_started_over_ssh_or_as_root(cluster: PageCluster) -> None:
    over_ssh = {"SSH_CONNECTION": "192.0.2.7 50000 192.0.2.1 22", "USER": "ada"}
    shown = setpoint(cluster.data_directory.parent, "page", "--data-dir", "data", "--open", environment=over_ssh)
    found = LINK.search(shown.stdout)
    assert found is not None
    assert f"ssh -L {found[1]}:127.0.0.1:{found[1]} ada@192.0.2.1" in shown.stderr


def test_the_page_can_be_switched_off(tmp_path: Path) -> None:
    flags = ("--nodes", "0", "--store", "memory", "--port", "0", "--page=false")
    shown = setpoint(tmp_path, "up", "--detach", *flags)
    try:
        assert "See it work" not in shown.stdout and not (tmp_path / ".setpoint" / "page").exists()
        refused = setpoint(tmp_path, "page", "--revoke")
        assert refused.returncode == 1 and "serves no page" in refused.stderr
    finally:
        setpoint(tmp_path, "down")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--page-address", "0.0.0.0"), "needs TLS"),
        (("--page-address", "192.0.2.1", "--page-host", "x.example"), "needs TLS"),
        (("--page-group", "x"), "--page-group needs --page-user"),
        (("--page-port", "70000"), "must be between 0 and 65535"),
    ],
)
def test_unsafe_settings_are_refused_before_anything_starts(
    tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    refused = setpoint(tmp_path, "up", "--nodes", "0", "--store", "memory", *flags)
    assert refused.returncode == 1 and message in refused.stderr
    assert not (tmp_path / ".setpoint").exists()
