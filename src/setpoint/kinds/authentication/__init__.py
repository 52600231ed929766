"""Kinds of authentication.k8s.io: one module each."""
