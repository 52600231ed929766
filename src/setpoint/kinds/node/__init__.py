"""Kinds of node.k8s.io: one module each."""
