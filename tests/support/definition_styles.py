"""Definitions in the style of well-known projects: what controller-gen writes, and what people add."""

from __future__ import annotations

CERTIFICATES = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: certificates.certs.example.io
  annotations: {controller-gen.kubebuilder.io/version: v0.16.5}
  labels: {app.kubernetes.io/name: certs}
spec:
  group: certs.example.io
  names: {kind: Certificate, listKind: CertificateList, plural: certificates, shortNames: [cert, certs], singular: certificate, categories: [certs]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    selectableFields:
    - {jsonPath: .spec.issuerRef.group}
    - {jsonPath: .spec.issuerRef.kind}
    - {jsonPath: .spec.issuerRef.name}
    additionalPrinterColumns:
    - {jsonPath: '.status.conditions[?(@.type=="Ready")].status', name: Ready, type: string}
    - {jsonPath: .spec.secretName, name: Secret, type: string}
    - {jsonPath: .spec.issuerRef.name, name: Issuer, priority: 1, type: string}
    - {jsonPath: .metadata.creationTimestamp, name: Age, type: date}
    schema:
      openAPIV3Schema:
        type: object
        description: |-
          A certificate that is wanted,

          and kept in a Secret.
        properties:
          apiVersion: {type: string, description: The version.}
          kind: {type: string, description: The kind.}
          metadata: {type: object}
          spec:
            type: object
            required: [issuerRef, secretName]
            properties:
              dnsNames: {type: array, items: {type: string}, x-kubernetes-list-type: atomic}
              duration: {type: string}
              issuerRef:
                type: object
                required: [name]
                properties: {group: {type: string}, kind: {type: string}, name: {type: string}}
              privateKey:
                type: object
                properties:
                  algorithm: {type: string, enum: [RSA, ECDSA, Ed25519]}
                  rotationPolicy: {type: string, enum: [Never, Always]}
                  size: {type: integer}
              revisionHistoryLimit: {type: integer, format: int32}
              secretName: {type: string}
              secretTemplate:
                type: object
                properties:
                  annotations: {type: object, additionalProperties: {type: string}}
                  labels: {type: object, additionalProperties: {type: string}}
              usages:
                type: array
                items: {type: string, enum: [signing, digital signature, server auth, client auth]}
          status:
            type: object
            properties:
              conditions:
                type: array
                x-kubernetes-list-map-keys: [type]
                x-kubernetes-list-type: map
                items:
                  type: object
                  required: [status, type]
                  properties:
                    lastTransitionTime: {type: string, format: date-time}
                    message: {type: string}
                    observedGeneration: {type: integer, format: int64}
                    reason: {type: string}
                    status: {type: string, enum: ["True", "False", Unknown]}
                    type: {type: string}
              notAfter: {type: string, format: date-time}
"""
MONITORS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.example.com}
spec:
  group: monitoring.example.com
  names: {categories: [prometheus-operator], kind: ServiceMonitor, listKind: ServiceMonitorList, plural: servicemonitors, shortNames: [smon], singular: servicemonitor}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          spec:
            type: object
            required: [endpoints, selector]
            properties:
              endpoints:
                type: array
                items:
                  type: object
                  properties:
                    interval: {type: string, pattern: '^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$'}
                    params: {type: object, additionalProperties: {type: array, items: {type: string}}}
                    port: {type: string}
                    scheme: {type: string, enum: [http, https]}
                    targetPort: {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true}
              sampleLimit: {type: integer, format: int64}
              selector:
                type: object
                x-kubernetes-map-type: atomic
                properties:
                  matchExpressions:
                    type: array
                    x-kubernetes-list-type: atomic
                    items:
                      type: object
                      required: [key, operator]
                      properties:
                        key: {type: string}
                        operator: {type: string}
                        values: {type: array, items: {type: string}, x-kubernetes-list-type: atomic}
                  matchLabels: {type: object, additionalProperties: {type: string}}
              storage:
                type: object
                properties:
                  limit:
                    anyOf: [{type: integer}, {type: string}]
                    pattern: ^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$
                    x-kubernetes-int-or-string: true
"""
APPLICATIONS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: applications.deploy.example.io}
spec:
  group: deploy.example.io
  names: {kind: Application, listKind: ApplicationList, plural: applications, shortNames: [app, apps], singular: application}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {}
    additionalPrinterColumns:
    - {jsonPath: .status.sync.status, name: Sync Status, type: string}
    - {jsonPath: .status.health.status, name: Health Status, type: string}
    - {jsonPath: .status.sync.revision, name: Revision, priority: 10, type: string}
    schema:
      openAPIV3Schema:
        type: object
        required: [metadata, spec]
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          operation:
            type: object
            properties:
              info: {type: array, items: {type: object, required: [name, value], properties: {name: {type: string}, value: {type: string}}}}
              retry: {type: object, properties: {limit: {type: integer, format: int64}}}
          spec:
            type: object
            required: [destination]
            properties:
              destination: {type: object, properties: {namespace: {type: string}, server: {type: string}}}
              ignoreDifferences: {type: array, items: {type: object, required: [kind], properties: {kind: {type: string}, jsonPointers: {type: array, items: {type: string}}}}}
              source:
                type: object
                required: [repoURL]
                properties:
                  helm:
                    type: object
                    properties:
                      values: {type: string}
                      valuesObject: {type: object, x-kubernetes-preserve-unknown-fields: true}
                  repoURL: {type: string}
                  targetRevision: {type: string}
          status:
            type: object
            properties:
              health: {type: object, properties: {status: {type: string}}}
              resources: {type: array, items: {type: object, properties: {kind: {type: string}, name: {type: string}}}}
              sync: {type: object, required: [status], properties: {revision: {type: string}, status: {type: string}}}
"""
