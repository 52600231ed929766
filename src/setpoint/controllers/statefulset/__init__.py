"""StatefulSets: Pods with stable names and volumes, created in order.

`identity` and `claims` build the Pod and the claims of an ordinal, `rollout` chooses the Pods to replace, `status`
computes the status: all are pure. `replicas` writes, `controller` orders the steps.
"""
