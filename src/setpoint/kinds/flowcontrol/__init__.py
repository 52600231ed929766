"""flowcontrol.apiserver.k8s.io: how requests share the server."""
