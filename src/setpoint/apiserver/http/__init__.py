"""The wire: HTTP/1.1, TLS, streaming, upgrades. Knows nothing of Kubernetes."""
