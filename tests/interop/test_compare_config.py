"""`config`: kubectl and `setpoint` write and show the same files."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comparing import Both

pytestmark = pytest.mark.slow

FILE = """
apiVersion: v1
kind: Config
clusters:
- name: home
  cluster: {server: "https://10.0.0.1:6443", certificate-authority-data: Y2E=}
- name: away
  cluster: {server: "https://10.0.0.2:6443", insecure-skip-tls-verify: true}
contexts:
- name: home
  context: {cluster: home, user: me}
- name: away
  context: {cluster: away, user: plugin, namespace: shop}
- name: broken
  context: {cluster: nowhere, user: me}
users:
- name: me
  user: {client-certificate-data: Y2VydA==, client-key-data: a2V5, token: secret}
- name: plugin
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: login, args: [a, b]}
current-context: home
"""


@pytest.fixture
def files(both: Both, request: pytest.FixtureRequest) -> Both:
    """Each has a file of its own, `{ns}`, and the same certificates."""
    for name in (both.theirs, both.ours):
        (both.home / name).write_text(FILE)
    for name in ("ca.crt", "me.crt", "me.key"):
        (both.home / name).write_text(f"content of {name}")
    # kubectl no longer writes preferences that are empty; the one compared with may be older.
    return replace(
        both, smooth=[(r"preferences: \{\}\n", ""), (r' *"preferences": \{\},\n', "")], namespace=both.namespace
    )


def shown(files: Both, lines: str) -> None:
    """Each line, and the file after it."""
    for line in lines.strip().splitlines():
        files.writes(line.strip() + " --kubeconfig={ns}")
        files.writes("config view --raw --kubeconfig={ns}")


def test_config_view_and_get(files: Both) -> None:
    files.writes("""
        config view --kubeconfig={ns}
        config view --kubeconfig={ns} -o json
        config view --kubeconfig={ns} --raw
        config view --kubeconfig={ns} --raw -o json
        config view --kubeconfig={ns} --minify
        config view --kubeconfig={ns} --minify --context=away
        config view --kubeconfig={ns} --flatten
        config view --kubeconfig={ns} --merge
        config view --kubeconfig={ns} -o jsonpath={.users[*].name}
        config view --kubeconfig={ns} --minify --output=jsonpath={..namespace}
        ! config view --kubeconfig={ns} --minify --context=broken
        ! config view --kubeconfig={ns} --minify --context=nobody
        config view --kubeconfig=not-there
        ! config view --kubeconfig=not-there --merge=false
        ! config view --kubeconfig={ns} more
        ! config view --kubeconfig={ns} -o nothing
        ! config view --kubeconfig= --merge=false
        config current-context --kubeconfig={ns}
        ! config current-context --kubeconfig=not-there
        config get-contexts --kubeconfig={ns}
        config get-contexts --kubeconfig={ns} --no-headers
        config get-contexts --kubeconfig={ns} -o name
        config get-contexts --kubeconfig={ns} away
        ! config get-contexts --kubeconfig={ns} away nobody
        ! config get-contexts --kubeconfig={ns} -o wide
        config get-contexts --kubeconfig=not-there
        config get-users --kubeconfig={ns}
    """)


def test_contexts(files: Both) -> None:
    shown(
        files,
        """
        config use-context away
        config use home
        ! config use-context nobody
        config set-context --current --namespace=there
        config set-context away --user=me
        config set-context new --cluster=home --user=me --namespace=here
        config set-context new --namespace=
        ! config set-context
        ! config set-context both --current
        config rename-context new newer
        config rename-context home at-home
        ! config rename-context nobody x
        ! config rename-context away newer
        config delete-context at-home
        ! config delete-context nobody
        config set-context --current --namespace=x --cluster=
    """,
    )


def test_clusters(files: Both) -> None:
    shown(
        files,
        """
        config set-cluster new --server=https://1.2.3.4
        config set-cluster new --tls-server-name=example.com
        config set-cluster new --server=https://4.3.2.1
        config set-cluster new --certificate-authority=ca.crt
        config set-cluster new --insecure-skip-tls-verify
        config set-cluster new --certificate-authority=ca.crt --embed-certs
        config set-cluster home --certificate-authority=/elsewhere/ca.crt
        config set-cluster home --proxy-url=http://proxy
        ! config set-cluster home --insecure-skip-tls-verify --certificate-authority=ca.crt
        ! config set-cluster home --embed-certs
        ! config set-cluster home --embed-certs --certificate-authority=not-there
        config delete-cluster new
        ! config delete-cluster new
    """,
    )


def test_users(files: Both) -> None:
    shown(
        files,
        """
        config set-credentials new --token=abc
        config set-credentials new --username=a --password=b
        config set-credentials new --client-certificate=me.crt --client-key=me.key
        config set-credentials new --client-certificate=me.crt --client-key=me.key --embed-certs
        config set-credentials prog --exec-command=p --exec-api-version=client.authentication.k8s.io/v1
        config set-credentials prog --exec-arg=a,b --exec-env=A=1 --exec-interactive-mode=Never
        config set-credentials prog --exec-env=A- --exec-env=B=2 --exec-provide-cluster-info
        config set-credentials prog --exec-command=q
        config set-credentials old --auth-provider=oidc --auth-provider-arg=client-id=x
        ! config set-credentials new --token=abc --username=x
        ! config set-credentials new --embed-certs
        ! config set-credentials prog --exec-interactive-mode=Maybe
        config delete-user me
        ! config delete-user me
        ! config delete-user
    """,
    )


def test_properties(files: Both) -> None:
    shown(
        files,
        """
        config set current-context away
        config set clusters.home.server https://1.1.1.1
        config set clusters.10.0.0.1.server https://10.0.0.1
        config set clusters.home.insecure-skip-tls-verify true
        config set clusters.home.certificate-authority-data eA==
        config set clusters.home.certificate-authority-data text --set-raw-bytes
        config set contexts.away.namespace other
        config set users.me.token t
        ! config set clusters.home.insecure-skip-tls-verify maybe
        ! config set clusters.home.certificate-authority-data %%%
        ! config set clusters.home x
        ! config set nothing x
        ! config set clusters.home.server.more x
        config unset clusters.home.certificate-authority-data
        config unset clusters.home.insecure-skip-tls-verify
        config unset current-context
        config unset contexts.away
        config unset users
        ! config unset clusters.nobody.server
    """,
    )


def test_several_files(files: Both) -> None:
    """An entry is written to the file it came from, a new one to the first that exists."""
    second = FILE.replace("home", "second").replace("current-context: second", "")
    for name in (files.theirs, files.ours):
        (files.home / f"{name}-b").write_text(second)
    for line in (
        "config view",
        "config get-contexts",
        "config set-context second --namespace=two",
        "config set-context brand-new --cluster=second",
        "config use-context second",
        "config delete-cluster second",
        "config rename-context second third",
        "config unset current-context",
        "config view",
    ):
        for name, run in ((files.theirs, files._kubectl), (files.ours, files._setpoint)):
            done = run(["--kubeconfig=", *line.split()], "", {"KUBECONFIG": f"missing-{name}:{name}:{name}-b"})
            assert done.code == 0, done.err
            (files.home / f"{name}.out").write_text(done.out)
        outputs = [(files.home / f"{name}.out").read_text() for name in (files.theirs, files.ours)]
        smoothed = [files._smoothed(text, name) for text, name in zip(outputs, (files.theirs, files.ours), strict=True)]
        assert smoothed[0] == smoothed[1], line
        for suffix in ("", "-b"):
            files.writes(f"config view --raw --kubeconfig={{ns}}{suffix}")
