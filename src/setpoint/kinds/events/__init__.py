"""`events.k8s.io`: Event in its newer form."""
