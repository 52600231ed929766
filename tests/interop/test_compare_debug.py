"""`debug` creates the same Pods as kubectl."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comparing import Both

pytestmark = pytest.mark.slow

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}, annotations: {a: b}}
spec:
  initContainers: [{name: first, image: busybox, command: ["true"]}]
  containers:
  - name: main
    image: nginx
    livenessProbe: {tcpSocket: {port: 80}}
    securityContext: {capabilities: {add: [CHOWN]}}
  - {name: side, image: busybox, args: [sleep, "1000"]}
"""
SPEC = "-o jsonpath={.metadata.labels}{.metadata.annotations}{.spec}"
PROFILES = ("general", "baseline", "restricted", "netadmin", "sysadmin", "legacy")


@pytest.fixture(scope="module")
def pods(both: Both) -> Both:
    both.given(POD)
    names = [
        (r"debugger-[a-z0-9]{5}\b", "debugger-XXXXX"),
        (r"(node-debugger-\S+)-[a-z0-9]{5}\b", r"\1-XXXXX"),
        (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-XXXXX"),
    ]
    return replace(both, smooth=names)


def test_ephemeral_containers(pods: Both) -> None:
    for profile in PROFILES:
        pods.writes(f"debug web --image=busybox -c {profile} --profile={profile} --env=A=1 -- sleep 10")
    pods.writes(f"""
        debug web --profile=general --image=busybox
        debug web --profile=general --image=busybox -q
        debug pod/web --profile=general --image=busybox --target=main -c more --image-pull-policy=Always
        get pod web {SPEC}
    """)


def test_copies(pods: Both) -> None:
    for profile in PROFILES:
        pods.writes(f"debug web --image=busybox -c extra --profile={profile} --copy-to=as-{profile}")
        pods.writes(f"get pod as-{profile} {SPEC}")
    pods.writes(f"""
        debug web --profile=general --copy-to=images --set-image=*=busybox,main=httpd
        get pod images {SPEC}
        debug web --profile=general --copy-to=command --container=main -- sleep 5
        get pod command {SPEC}
        debug web --profile=general --copy-to=args --container=side --arguments-only --share-processes=false -- sleep 5
        get pod args {SPEC}
        debug web --profile=general --copy-to=kept --image=busybox -q --keep-labels --keep-annotations --keep-liveness
        get pod kept {SPEC}
        debug web --profile=general --copy-to=bare --image=busybox -c x --keep-init-containers=false --same-node
        get pod bare {SPEC}
        debug bare --profile=general --copy-to=instead --image=busybox -c y --replace
        ! get pod bare
    """)


def test_invalid_arguments(pods: Both) -> None:
    pods.writes("""
        ! debug
        ! debug web
        ! debug nobody --image=busybox
        ! debug web --image=Busybox!
        ! debug web --image=busybox -t
        ! debug web --image=busybox --profile=nothing
        ! debug web --image=busybox --replace
        ! debug web --image=busybox --same-node
        ! debug web --set-image=*=x
        ! debug web --copy-to=x
        ! debug web --copy-to=x -- ls
        ! debug web --copy-to=x --target=main --image=busybox
        ! debug web --copy-to=x --container=new -- ls
        ! debug web --image=busybox --image-pull-policy=Sometimes
        ! debug web --image=busybox --custom=not-there
        ! debug web --attach
        ! debug cm/kube-root-ca.crt --image=busybox
        ! debug svc/nobody --image=busybox
        ! debug web --image=busybox -c main
    """)
