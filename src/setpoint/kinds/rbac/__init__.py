"""Who may do what: rbac.authorization.k8s.io/v1."""
