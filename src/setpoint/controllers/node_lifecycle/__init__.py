"""Monitors the health of nodes and taints unhealthy ones.

A node is healthy while it renews its Lease or updates its status. If it does neither for the grace period, its
conditions become Unknown and its Pods are marked as not ready. Nodes that are not ready get a NoSchedule taint at once,
and a NoExecute taint at a rate that depends on the state of their zone: when many nodes fail together, a network
failure is more likely. The scheduler and taint eviction act on the taints.
"""
