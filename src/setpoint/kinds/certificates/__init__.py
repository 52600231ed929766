"""certificates.k8s.io: asking for certificates, and the bundles that tell whom to trust."""
