"""Objects that command lines write in the comparisons with kubectl, before and after a change."""

from __future__ import annotations

MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: one, labels: {app: web}}
data: {a: "1", b: "two"}
"""
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}, annotations: {note: "<a&b>"}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      volumes: [{name: v, emptyDir: {}}, {name: w, configMap: {name: one}}]
      containers:
      - name: main
        image: nginx:1
        args: [x, "y", z]
        env: [{name: A, value: "1"}, {name: B, value: "2"}]
        ports: [{containerPort: 80}, {containerPort: 81, name: other}]
      - {name: side, image: "busybox:1"}
"""
WEB_CHANGED = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web, more: x}}
spec:
  selector: {matchLabels: {app: web}}
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app: web}}
    spec:
      volumes: [{name: v, hostPath: {path: /x}}]
      containers:
      - name: main
        image: nginx:2
        args: [z]
        env: [{name: C, value: "3"}, {name: B, value: "2"}]
        ports: [{containerPort: 81, name: other}, {containerPort: 82}]
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80, name: http}, {port: 443, name: https}]}
"""
