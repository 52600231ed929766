"""`certificates.k8s.io`: certificate requests and trust bundles."""
