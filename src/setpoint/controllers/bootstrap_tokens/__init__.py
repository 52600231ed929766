"""Tokens with which new nodes introduce themselves: Secrets `bootstrap-token-<id>` in `kube-system`."""
