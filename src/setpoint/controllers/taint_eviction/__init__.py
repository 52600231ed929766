"""Evicts Pods from nodes with NoExecute taints: at once, when their toleration ends, or never."""
