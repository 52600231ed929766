"""Role-based access control: rbac.authorization.k8s.io/v1."""
