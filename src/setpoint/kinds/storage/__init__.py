"""Classes, drivers and attachments of volumes: storage.k8s.io/v1."""
