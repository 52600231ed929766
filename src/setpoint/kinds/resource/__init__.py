"""`resource.k8s.io`: devices, requests for them, and their allocation.

Rules come in two kinds, and messages in that order: first those of a kind's own code (`errs`), then those that are
declared on its fields (`late`)."""
