"""Routes, policies and addresses: networking.k8s.io/v1."""
