"""DaemonSets: one Pod on every eligible node.

`placement` decides which nodes are eligible and builds their Pods, `upkeep` finds missing and surplus Pods, `rollout`
chooses which Pods are replaced, `status` computes the status: all are pure. `controller` orders the steps and writes.
"""
