"""`storagemigration.k8s.io`: rewriting stored objects in the current version."""
