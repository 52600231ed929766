"""`taint`, `cordon` and `drain`: the same results by kubectl and by `setpoint`."""

from __future__ import annotations

import pytest
from comparing import Both

pytestmark = pytest.mark.slow

NODES = """\
apiVersion: v1
kind: Node
metadata: {name: "{ns}", labels: {of: "{ns}"}}
spec: {taints: [{key: old, value: "1", effect: NoSchedule}]}
---
apiVersion: v1
kind: Pod
metadata: {name: alone}
spec: {nodeName: "{ns}", containers: [{name: c, image: i}]}
"""
OWNED = """\
apiVersion: v1
kind: Pod
metadata:
  name: owned
  labels: {app: owned}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: "1", controller: true}]
spec: {nodeName: "{ns}", containers: [{name: c, image: i}]}
"""
WITH_DATA = """\
apiVersion: v1
kind: Pod
metadata:
  name: data
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: "1", controller: true}]
spec: {nodeName: "{ns}", containers: [{name: c, image: i}], volumes: [{name: d, emptyDir: {}}]}
"""


@pytest.fixture(scope="module", autouse=True)
def given(both: Both) -> None:
    both.given(NODES)


def test_taint(both: Both) -> None:
    both.writes("""
        taint node {ns} a=b:NoSchedule
        ! taint node {ns} a=c:NoSchedule
        taint node {ns} a=c:NoSchedule --overwrite
        taint nodes {ns} b:NoExecute c=:PreferNoSchedule --dry-run=client -o yaml
        taint nodes {ns} b:NoExecute c=:PreferNoSchedule --dry-run=server
        taint nodes {ns} b:NoExecute a-
        taint no {ns} b:NoExecute-
        taint no -l of={ns} d:NoSchedule
        taint node {ns} d- old- -o yaml
        ! taint node {ns} d-
        ! taint node {ns} a=b
        ! taint node {ns} a=b:Never
        ! taint node {ns} a=b:NoSchedule a=c:NoSchedule
        ! taint node {ns} a:NoSchedule a-
        ! taint node {ns} a=b=c:NoSchedule
        ! taint node {ns} a=_b:NoSchedule
        ! taint node {ns} _a=b:NoSchedule
        ! taint node {ns} a:b:c
        ! taint node {ns}
        ! taint node a=b:NoSchedule
        ! taint pod {ns} a=b:NoSchedule
        ! taint node {ns} a=b:NoSchedule other
        ! taint node nothing a=b:NoSchedule
        ! taint node --all -l a=b a=b:NoSchedule
        ! taint
    """)


def test_cordon(both: Both) -> None:
    both.writes("""
        cordon {ns} --dry-run=client
        cordon {ns} --dry-run=server
        cordon {ns}
        cordon {ns}
        uncordon node/{ns}
        uncordon {ns}
        cordon -l of={ns}
        uncordon -l of={ns}
        cordon -l of=nothing
        ! cordon nothing
        ! cordon
        ! cordon {ns} -l a=b
    """)


def test_drain(both: Both) -> None:
    both.writes("""
        ! drain {ns}
        drain {ns} --force --dry-run=client
        drain {ns} --force --dry-run=server
        drain {ns} --pod-selector=a=b
        ! drain {ns} --pod-selector=((
        drain {ns} --force --grace-period=0
        drain {ns}
        ! drain nothing
        ! drain
    """)
    both.given(OWNED)
    both.writes("drain {ns} --disable-eviction --grace-period=0")
    both.given(OWNED)
    both.writes("""
        create pdb p --selector=app=owned --min-available=1
        ! drain {ns} --timeout=1s
        delete pdb p -o name
        drain {ns} --grace-period=0 --timeout=20s
    """)
    both.given(WITH_DATA)
    both.writes("""
        ! drain {ns}
        drain {ns} --delete-emptydir-data --grace-period=0
        uncordon {ns}
    """)
