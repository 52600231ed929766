"""Kustomizations: the same output by kubectl and by `setpoint`."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparing import Both

BASE = {
    "base/kustomization.yaml": "resources: [web.yaml, rest.yaml]\n",
    "base/web.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: runner
      imagePullSecrets: [{name: pull}]
      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector:
          {matchLabels: {app: web}}, topologyKey: x}]}}
      volumes: [{name: c, configMap: {name: settings}}, {name: s, secret: {secretName: keys}}, {name: p,
          persistentVolumeClaim: {claimName: data}}]
      initContainers: [{name: init, image: "busybox:1", envFrom: [{configMapRef: {name: settings}}]}]
      containers:
      - name: web
        image: nginx:1.0
        args: [$(WEB_SERVICE), plain, $$(escaped)]
        env:
        - {name: A, value: "1"}
        - {name: K, valueFrom: {secretKeyRef: {name: keys, key: k}}}
        ports: [{containerPort: 80}, {containerPort: 53, protocol: UDP}]
      - {name: side, image: "registry.example:5000/tools/side@sha256:abc"}
""",
    "base/rest.yaml": """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, name: http}, {port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: runner}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: bind}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: act}
subjects: [{kind: ServiceAccount, name: runner, namespace: default}, {kind: ServiceAccount, name: default},
    {kind: User, name: someone}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: act}
rules: [{apiGroups: [""], resources: [configmaps], resourceNames: [settings], verbs: [get]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: web
  replicas: 1
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: db, image: postgres}]}}
  volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce]}}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec:
    {restartPolicy: Never, containers: [{name: t, image: busybox, envFrom: [{secretRef: {name: keys}}]}]}}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, maxReplicas: 3}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {rules: [{host: x.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web,
    port: {number: 80}}}}]}}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: some}
---
apiVersion: example.com/v1
kind: Thing
metadata: {name: thing}
spec: {list: [{name: a}, {name: b}], template: {spec: {containers: [{name: x, image: nginx}]}}}
""",
}

GENERATORS = """
configMapGenerator:
- name: settings
  literals: [a=1, 'b="quoted"', c=x=y, "d="]
  files: [file.txt, other=file.txt]
  envs: [vars.env]
- {name: plain, literals: [k=v], options: {disableNameSuffixHash: true, labels: {own: label}, annotations:
    {own: "1"}, immutable: true}}
- {name: binary, files: [bytes.bin]}
secretGenerator:
- {name: keys, literals: [k=secret, long=0123456789012345678901234567890123456789012345678901234567890123456789]}
- {name: pull, type: kubernetes.io/dockerconfigjson, files: [.dockerconfigjson=file.txt]}
generatorOptions: {labels: {generated: "yes"}, annotations: {from: kustomize}}
"""
FILES = {"file.txt": "hello\nworld\n", "vars.env": "# comment\nX=1\n\n  Y=two words \nZ\n"}

CASES: dict[str, dict[str, str]] = {
    "plain": {"kustomization.yaml": "resources: [../base]\n"},
    "names": {"kustomization.yaml": "resources: [../base]\nnamePrefix: pre-\nnameSuffix: -suf\n"},
    "namespace": {"kustomization.yaml": "resources: [../base]\nnamespace: elsewhere\nnamePrefix: p-\n"},
    "labels": {
        "kustomization.yaml": """
resources: [../base]
commonLabels: {team: a}
labels:
- pairs: {only: metadata}
- {pairs: {also: templates}, includeTemplates: true}
- {pairs: {and: selectors}, includeSelectors: true}
- {pairs: {f: x}, fields: [{path: spec/template/metadata/labels, kind: Thing, create: true}]}
commonAnnotations: {note: hello}
"""
    },
    "images": {
        "kustomization.yaml": """
resources: [../base]
images:
- {name: nginx, newTag: "2.0"}
- {name: busybox, newName: mirror.example/busybox}
- {name: postgres, digest: "sha256:0123"}
- {name: "registry.example:5000/tools/side", newName: side, newTag: v2}
replicas: [{name: web, count: 5}, {name: db, count: 0}]
"""
    },
    "generators": {"kustomization.yaml": "resources: [../base]\nnamePrefix: g-\n" + GENERATORS, **FILES},
    "behavior": {
        "kustomization.yaml": """
resources: [inner]
configMapGenerator:
- {name: settings, behavior: merge, literals: [a=2, new=x]}
- {name: plain, behavior: replace, literals: [only=this]}
nameSuffix: -b
""",
        "inner/kustomization.yaml": "namePrefix: i-\n" + GENERATORS,
        **{f"inner/{name}": text for name, text in FILES.items()},
    },
    "patches": {
        "kustomization.yaml": """
resources: [../base]
patches:
- path: web.yaml
- target: {kind: Deployment}
  patch: |
    - {op: replace, path: /spec/template/spec/containers/0/image, value: patched}
    - {op: add, path: /metadata/labels/extra, value: "yes"}
- target: {kind: "Stateful.*|Cron.*"}
  patch: |
    apiVersion: v1
    kind: Anything
    metadata: {name: anything, annotations: {patched: "true"}}
- patch: |
    apiVersion: v1
    kind: Service
    metadata: {name: web}
    spec: {ports: [{port: 53, protocol: UDP, name: dns}, {port: 99}], selector: null}
- patch: '{apiVersion: batch/v1, kind: CronJob, metadata: {name: tick}, $patch: delete}'
- target: {labelSelector: app=web}
  patch: '[{"op": "add", "path": "/metadata/annotations", "value": {"selected": "by label"}}]'
- patch: |
    apiVersion: example.com/v1
    kind: Thing
    metadata: {name: thing}
    spec: {list: [{name: c}], more: {a: null, b: 1}}
""",
        "web.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      volumes: [{name: s, $patch: delete}, {name: e, emptyDir: {}}]
      affinity: {$patch: delete}
      initContainers: [{$patch: replace}, {name: other, image: x}]
      containers:
      - name: side
        image: new-side
      - name: web
        env: [{name: B, value: "2"}, {name: A, $patch: delete}]
        args: [replaced]
        ports: [{containerPort: 80, name: http}, {containerPort: 8080}]
""",
    },
    "older-patches": {
        "kustomization.yaml": """
resources: [../base]
namePrefix: p-
patchesStrategicMerge:
- web.yaml
- |
  apiVersion: v1
  kind: Service
  metadata: {name: web}
  spec: {type: NodePort}
patchesJson6902:
- target: {version: v1, kind: Service, name: web}
  patch: '[{"op": "replace", "path": "/spec/ports/0/port", "value": 8080}]'
- target: {group: apps, version: v1, kind: StatefulSet, name: db}
  path: db.yaml
""",
        "web.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3}\n",
        "db.yaml": "- {op: remove, path: /spec/replicas}\n",
    },
    "renaming-patch": {
        "kustomization.yaml": """
resources: [../base]
patches:
- target: {kind: Service, name: web}
  patch: '{apiVersion: v1, kind: Service, metadata: {name: renamed}}'
  options: {allowNameChange: true}
""",
    },
    "components": {
        "kustomization.yaml": "resources: [../base]\ncomponents: [extra]\nnamePrefix: c-\n",
        "extra/kustomization.yaml": """
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
configMapGenerator: [{name: settings, literals: [from=component]}]
patches:
- patch: '{apiVersion: v1, kind: Service, metadata: {name: web, labels: {component: "yes"}}}'
commonAnnotations: {by: component}
""",
    },
    "replacements": {
        "kustomization.yaml": """
resources: [../base]
namePrefix: r-
replacements:
- source: {kind: Service, name: web, fieldPath: "spec.ports.[name=http].port"}
  targets:
  - select: {kind: Deployment}
    fieldPaths:
    - spec.template.spec.containers.[name=web].env.[name=A].value
    - spec.template.spec.containers.0.ports.0.containerPort
  - select: {kind: Thing}
    fieldPaths: [spec.port, metadata.annotations.port]
    options: {create: true}
- source: {kind: Deployment, name: web, fieldPath: "spec.template.spec.containers.0.image", options:
    {delimiter: ":", index: 1}}
  targets:
  - select: {kind: StatefulSet}
    fieldPaths: ["spec.template.spec.containers.*.image"]
    options: {delimiter: ":", index: 1}
- source: {kind: ServiceAccount, name: runner}
  targets:
  - select: {kind: Ingress}
    reject: [{name: other}]
    fieldPaths: ["spec.rules.0.host"]
    options: {delimiter: ".", index: 0}
""",
    },
    "vars": {
        "kustomization.yaml": """
resources: [../base]
namePrefix: v-
vars:
- {name: WEB_SERVICE, objref: {apiVersion: v1, kind: Service, name: web}}
""",
    },
    "order": {"kustomization.yaml": "resources: [../base]\nsortOptions: {order: fifo}\n"},
    "own-order": {
        "kustomization.yaml": """
resources: [../base]
sortOptions: {order: legacy, legacySortOptions: {orderFirst: [Thing, Service], orderLast: [Namespace]}}
"""
    },
    "two-of-a-kind": {
        "kustomization.yaml": "resources: [one, two]\n",
        "one/kustomization.yaml": "resources: [../../base]\nnamePrefix: one-\n"
        "configMapGenerator: [{name: settings, literals: [a=1]}]\n",
        "two/kustomization.yaml": "resources: [../../base]\nnamePrefix: two-\nnamespace: other\n"
        "configMapGenerator: [{name: settings, literals: [a=2]}]\n",
    },
    "metadata": {
        "kustomization.yaml": "resources: [../base]\nnamePrefix: m-\n"
        "buildMetadata: [originAnnotations, transformerAnnotations]\n"
        "configMapGenerator: [{name: settings, literals: [a=1]}]\n"
    },
    "configurations": {
        "kustomization.yaml": """
resources: [../base, bases]
namePrefix: c-
namespace: other
configurations: [own.yaml]
commonLabels: {x: z}
""",
        "own.yaml": """
nameReference: [{kind: Service, version: v1, fieldSpecs: [{kind: Thing, path: spec/service}]}]
namespace: [{kind: Thing, path: spec/ns, create: true}]
commonLabels: [{kind: Thing, path: spec/labels, create: true}]
namePrefix: [{kind: Thing, path: spec/named}]
""",
        "bases/kustomization.yaml": "resources: [thing.yaml]\n",
        "bases/thing.yaml": """
apiVersion: example.com/v1
kind: Thing
metadata: {name: other, annotations: }
spec: {service: web, named: x}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: flow}
""",
    },
    "transformers": {
        "kustomization.yaml": """
resources: [../base]
transformers:
- own.yaml
- |-
  apiVersion: builtin
  kind: PrefixSuffixTransformer
  metadata: {name: p}
  prefix: pre-
  suffix: -suf
  fieldSpecs: [{path: metadata/name}]
""",
        "own.yaml": """
apiVersion: builtin
kind: LabelTransformer
metadata: {name: l}
labels: {own: label}
fieldSpecs: [{path: metadata/labels, create: true}, {path: spec/labels, kind: Thing, create: true}]
---
apiVersion: builtin
kind: NamespaceTransformer
metadata: {name: n, namespace: moved}
fieldSpecs: [{path: metadata/name, kind: Namespace}]
---
apiVersion: builtin
kind: PatchTransformer
metadata: {name: x}
target: {kind: Service}
patch: '[{"op": "add", "path": "/spec/type", "value": "NodePort"}]'
---
apiVersion: builtin
kind: ImageTagTransformer
metadata: {name: i}
imageTag: {name: nginx, newTag: "9"}
---
apiVersion: builtin
kind: ReplicaCountTransformer
metadata: {name: r}
replica: {name: web, count: 7}
fieldSpecs: [{path: spec/replicas, kind: Deployment, create: true}]
""",
    },
    "local": {
        "kustomization.yaml": "resources: [x.yaml]\n",
        "x.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: dropped, annotations: {config.kubernetes.io/local-config: "true"}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {yes: no, on: "off", t: "2020-01-01", n: 010}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
""",
    },
}
WRONG: dict[str, dict[str, str]] = {
    "nothing": {"readme": "x"},
    "empty": {"kustomization.yaml": ""},
    "unknown-field": {"kustomization.yaml": "resources: [../base]\nodd: 1\n"},
    "missing": {"kustomization.yaml": "resources: [nowhere.yaml]\n"},
    "bad-yaml": {"kustomization.yaml": "resources: [x.yaml]\n", "x.yaml": ": : [\n"},
    "twice": {"kustomization.yaml": "resources: [../base, ../base]\n"},
    "cycle": {"kustomization.yaml": "resources: [../cycle]\n"},
    "outside": {"kustomization.yaml": "resources: [../base/web.yaml]\n"},
    "no-target": {
        "kustomization.yaml": "resources: [../base]\n"
        "patches: [{patch: '{apiVersion: v1, kind: Service, metadata: {name: no}}'}]\n"
    },
    "no-replica": {"kustomization.yaml": "resources: [../base]\nreplicas: [{name: no, count: 1}]\n"},
    "bad-literal": {"kustomization.yaml": "configMapGenerator: [{name: x, literals: [novalue]}]\n"},
    "exists": {
        "kustomization.yaml": "resources: [x.yaml]\nconfigMapGenerator: [{name: x}]\n",
        "x.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}",
    },
    "merge-nothing": {"kustomization.yaml": "configMapGenerator: [{name: x, behavior: merge}]\n"},
    "not-a-component": {"kustomization.yaml": "components: [../base]\n"},
    "number-label": {"kustomization.yaml": "resources: [../base]\ncommonLabels: {a: 1}\n"},
    "json-fails": {
        "kustomization.yaml": "resources: [../base]\n"
        "patches: [{target: {kind: Service}, patch: '[{op: remove, path: /no/where}]'}]\n"
    },
    "unnamed": {"kustomization.yaml": "resources: [x.yaml]\n", "x.yaml": "{apiVersion: v1, kind: ConfigMap}"},
    "no-source": {
        "kustomization.yaml": "resources: [../base]\n"
        "replacements: [{source: {kind: No}, targets: [{select: {kind: Service}}]}]\n"
    },
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(scope="module")
def laid_out(both: Both) -> Both:
    write(both.home, BASE)
    for name, files in (CASES | WRONG).items():
        write(both.home / name, files)
    for name in ("generators", "behavior/inner"):
        (both.home / name / "bytes.bin").write_bytes(bytes(range(256)))
    return both


@pytest.mark.parametrize("name", CASES)
def test_kustomizations_are_built_equally(laid_out: Both, name: str) -> None:
    laid_out.reads(f"kustomize {name}")


def test_kustomizations_are_rejected_equally(laid_out: Both) -> None:
    laid_out.reads("\n".join(f"! kustomize {name}" for name in WRONG))
    laid_out.reads("! kustomize nowhere\n! kustomize a b\n! kustomize base --load-restrictor=odd")
    laid_out.reads("kustomize outside --load-restrictor=LoadRestrictionsNone")


def test_kustomizations_are_applied_equally(laid_out: Both) -> None:
    laid_out.writes("""
        ! apply -k generators --dry-run=client -o name
        ! create -k images --dry-run=client -o yaml
        ! apply -k nothing
        ! apply -k generators -f x
    """)
