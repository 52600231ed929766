"""Whether nodes live, and what is to be done when they do not.

A node shows that it lives by renewing its Lease or by writing its status. One that does neither for the grace period
has its conditions set to Unknown, and its Pods no longer count as ready. Nodes that are not ready carry taints: one
that keeps new Pods away, at once, and one that evicts those that are there, so many nodes at a time as the state of
their zone allows: when much fails at once, it is more likely the network than the nodes. What follows from the taints
is the business of the scheduler and of taint eviction.
"""
