"""authorization.k8s.io: may somebody do something? Asked and answered at once, never stored."""
