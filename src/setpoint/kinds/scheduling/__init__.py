"""`scheduling.k8s.io`: PriorityClass."""
