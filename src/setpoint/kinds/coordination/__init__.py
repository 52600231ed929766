"""`coordination.k8s.io`: Lease."""
