"""DaemonSets: one Pod on every node that will have it.

`placement` says which nodes those are and what the Pod of a node looks like, `upkeep` what is missing and what is too
much, `rollout` which Pods give way to a new template, `status` how far it got: all pure. `controller` puts the steps in
order and writes.
"""
