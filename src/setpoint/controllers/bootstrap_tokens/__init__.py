"""Bootstrap tokens, with which new nodes join: Secrets `bootstrap-token-<id>` in `kube-system`."""
