"""DaemonSets: one Pod on every eligible node.

`placement` decides which nodes are eligible and builds their Pods, `rollout` finds missing and surplus Pods and chooses
which Pods are replaced: both are pure. `revisions` maintains the history, `controller` orders the steps and writes.
"""
