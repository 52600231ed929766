"""kubectl's verbs, one file each. They know the cluster through `client` alone."""
