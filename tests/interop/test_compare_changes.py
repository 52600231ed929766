"""`run`, `expose`, `autoscale` and `set`: the same results by kubectl and by `setpoint`."""

from __future__ import annotations

import pytest
from comparing import Both

pytestmark = pytest.mark.slow

WORKLOADS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers: [{name: first, image: "busybox:1"}]
      containers:
      - name: c
        image: "nginx:1"
        ports: [{containerPort: 80}, {containerPort: 53, protocol: UDP}]
        env: [{name: A, value: b}]
      - {name: side, image: "busybox:1"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: plain, labels: {app: plain}}
spec:
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain}}
    spec: {containers: [{name: c, image: "nginx:1"}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: odd}
spec:
  selector: {matchLabels: {app: odd}, matchExpressions: [{key: app, operator: In, values: [odd]}]}
  template:
    metadata: {labels: {app: odd}}
    spec: {containers: [{name: c, image: "nginx:1"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {one.key: "1"}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {password: sesame}
---
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: ann}]
"""
FILE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: local}
spec:
  selector: {matchLabels: {app: local}}
  template:
    metadata: {labels: {app: local}}
    spec: {containers: [{name: c, image: "nginx:1"}]}
"""


@pytest.fixture(scope="module", autouse=True)
def given(both: Both) -> None:
    both.given(WORKLOADS)
    (both.home / "local.yaml").write_text(FILE)
    both.smooth.append((r"\b10\.\d+\.\d+\.\d+\b", "ADDRESS"))
    both.smooth.append((r"nodePort: 3\d{4}", "nodePort: N"))


def test_run(both: Both) -> None:
    both.writes(
        """
        run p --image=nginx --dry-run=client -o yaml
        run p --image=nginx --port=80 --env=A=b --env=C= --labels=b=c,a=d --dry-run=client -o json -- x y
        run p --image=i --command --privileged --restart=Never --image-pull-policy=Never -oyaml --dry-run=client -- x
        run p --image=nginx --port=80 --annotations=a=b --dry-run=client -o yaml
        run p --image=nginx -i -t --attach=false --dry-run=client -o yaml
        run p --image=nginx -i --attach=false --leave-stdin-open --dry-run=client -o json
        run p --image=nginx --dry-run=client -o yaml --overrides='{"spec":{"hostNetwork":true,"nothing":1}}'
        run p --image=i --dry-run=client -o json --override-type=strategic --overrides='{strategic}'
        run p --image=i --dry-run=client -o yaml --override-type=json --overrides='{json}'
        run p --image=nginx --dry-run=server
        run p --image=nginx --port=80
        run q --image=reg.example.com:5000/a/b_c.d/e--f:tag@sha256:0123456789abcdef0123456789abcdef -o name
        ! run p --image=nginx
        ! run --image=nginx
        ! run r
        ! run r --image=Nginx
        ! run r --image=nginx@sha256:12
        ! run r --image=nginx --restart=Sometimes
        ! run r --image=nginx --image-pull-policy=Sometimes
        ! run r --image=nginx --expose
        ! run r --image=nginx --port=web
        ! run r --image=nginx --env=A
        ! run r --image=nginx --env=1=b
        ! run r --image=nginx --labels=a
        ! run r --image=nginx --annotations=a
        ! run r --image=nginx --rm
        ! run r --image=nginx -t
        ! run r --image=nginx -i --dry-run=client
        ! run r --image=nginx --overrides='{' --dry-run=client
        ! run r --image=nginx --overrides='{}' --override-type=odd --dry-run=client
    """.replace("{strategic}", '{"spec":{"containers":[{"name":"p","tty":true}]}}').replace(
            "{json}", '[{"op":"add","path":"/metadata/labels/a","value":"b"}]'
        )
    )


def test_expose(both: Both) -> None:
    both.writes("""
        expose deployment web --dry-run=client -o yaml
        expose deployment web --dry-run=client -o json --port=80 --target-port=http --type=NodePort --name=n
        expose deployment plain --port=80,81 --protocol=UDP --dry-run=client -o yaml
        expose deploy plain --port=80 --session-affinity=ClientIP --external-ip=1.1.1.1 -la=b -oyaml --dry-run=client
        expose deployment plain --cluster-ip=None --selector=x=y --dry-run=client -o yaml
        expose deployment plain --port=80 --type=LoadBalancer --load-balancer-ip=1.2.3.4 --dry-run=client -o yaml
        expose service s --port=81 --name=t --dry-run=client -o yaml
        expose deployment plain --port=80 --dry-run=server -o yaml
        expose deployment plain --port=80 --overrides='{"spec":{"type":"NodePort"}}' --dry-run=client -o yaml
        expose deployment plain --port=80
        expose deploy/web --name=web -o json
        ! expose deployment plain --port=80
        ! expose deployment plain
        ! expose deployment odd --port=80
        ! expose deployment plain --port=web --name=x
        ! expose deployment plain --port=80 --session-affinity=x --name=x
        ! expose deployment plain --port=80 -l a --name=x
        ! expose configmap settings --port=80
        ! expose deployment nothing --port=80
        ! expose
    """)


def test_autoscale(both: Both) -> None:
    both.writes("""
        autoscale deployment web --max=5 --min=2 --cpu-percent=50 --dry-run=client -o jsonpath={.spec}
        autoscale deployment web --max=5 --dry-run=client
        autoscale deployment web --max=5 --dry-run=server -o yaml
        autoscale deployment web --max=5 --min=2 --cpu-percent=50 --name=other
        autoscale deployment web --max=5 -o json
        ! autoscale deployment web --max=5
        ! autoscale deployment web --max=5 --min=6
        ! autoscale deployment web --max=0
        ! autoscale deployment web
        ! autoscale deployment nothing --max=3
        ! autoscale configmap settings --max=3
    """)


def test_set(both: Both) -> None:
    both.writes("""
        set image deployment/web c=nginx:2 --dry-run=client -o yaml
        set image deployment/web c=nginx:2 --dry-run=server
        set image deployment/web c=nginx:2 first=busybox:2
        set image deployment/web c=nginx:2
        set image deployment web side=busybox:2 -o yaml
        set image deployments --all c=nginx:3
        set image deploy -l app=web *=nginx:4
        set image -f local.yaml c=nginx:2 --local -o yaml
        set image -f local.yaml c=nginx:2 --local -o json
        ! set image deployment/web nothing=x
        ! set image deployment/web c=x *=y
        ! set image deployment/web
        ! set image c=x
        ! set image deployment/web c=x deployment/plain
        ! set image configmap/settings c=x
        ! set image deployment/nothing c=x
        ! set image deployment/web c=x --local
        ! set image -f local.yaml c=x --local --dry-run=server
        set env deployment/web B=c A-
        set env deployment/web B=c
        set env deployment/web --list
        set env deployment/web --from=configmap/settings
        set env deployment/web --from=secret/hidden --keys=password --prefix=P_
        set env deployment/web --list
        set env deployment/web --list --resolve
        set env deployment/web -c side X=y --dry-run=client -o yaml
        set env deployment/web -c nothing X=y
        set env -f local.yaml A=b --local -o yaml
        set env deployment --all -e Z=1
        ! set env deployment/web B=d --overwrite=false
        ! set env deployment/web A=1 A-
        ! set env deployment/web 1=1
        ! set env A=b
        ! set env deployment/web A=b configmap/settings
        ! set env deployment/web --keys=a
        ! set env deployment/web --list -o yaml
        ! set env configmap/settings A=b
        set resources deployment/web --limits=cpu=200m,memory=0.5Gi --requests=cpu=0.1
        set resources deployment/web --limits=cpu=200m -c=c
        set resources deployment/web --limits=cpu=300m -c=s* -o yaml
        set resources -f local.yaml --limits=cpu=300m --local -o yaml
        ! set resources deployment/web
        ! set resources deployment/web --limits=cpu
        ! set resources deployment/web --limits=cpu=x
        ! set resources deployment/web --limits=cpu=1 -c=nothing
        set selector service/s app=other,tier=x
        set selector service/s app=other,tier=x -o yaml
        set selector service s app=web --dry-run=client
        ! set selector service/s app=web --resource-version=1
        ! set selector deployment/web app=web
        ! set selector service/s 'app in (web)'
        ! set selector
        set serviceaccount deployment/web robot
        set sa deployment web robot --dry-run=client -o name
        ! set serviceaccount
        ! set serviceaccount configmap/settings robot
        set subject rolebinding b --user=bob --group=g --serviceaccount=x:y
        set subject rolebinding b --user=bob
        set subject rolebinding b --serviceaccount=:here -o yaml
        ! set subject rolebinding b
        ! set subject rolebinding b --serviceaccount=x
        ! set subject configmap settings --user=x
        ! set nothing
    """)
