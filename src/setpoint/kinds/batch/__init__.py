"""Kinds that run Pods to completion: batch/v1."""
