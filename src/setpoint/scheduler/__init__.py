"""Binds Pods to nodes."""
