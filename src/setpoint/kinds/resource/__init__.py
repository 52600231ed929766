"""resource.k8s.io: devices, who asks for them and who got them.

Rules come in two kinds, and messages in that order: first those of a kind's own code (`errs`), then those that are
declared on its fields (`late`)."""
