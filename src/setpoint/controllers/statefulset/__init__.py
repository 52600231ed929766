"""StatefulSets: Pods with stable names and volumes, created in order.

`identity` builds the Pod and the claims of an ordinal and is pure. `replicas` writes, `controller` orders the steps,
chooses the Pods to replace and computes the status.
"""
