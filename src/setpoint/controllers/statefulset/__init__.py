"""StatefulSets: Pods with names of their own, made one after the other, each with the volumes it had before.

`identity` and `claims` say what the Pod and the claims of an ordinal look like, `rollout` which Pods give way to a new
template, `status` how far it got: all pure. `replicas` writes, `controller` puts the steps in order.
"""
