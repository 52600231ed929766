"""Verification of certificate chains by the rules, and with the error texts, of Go's `crypto/x509`.

OpenSSL's rules differ in both directions from those by which Kubernetes decides whom it trusts, and they depend on how
OpenSSL was built. This package decides about certificates alone: no I/O, no clock, no trust store.

- A chain ends at a certificate of the given pool, whatever its kind: a root, an intermediate, or the leaf itself.
- Signatures, validity, basic constraints, path lengths, name constraints, extended key usages along the whole chain and
  unknown critical extensions are checked; names are taken from subjectAltName only.
- Nothing is accepted that Go refuses. Stricter than Go: certificates that `requireExplicitPolicy` are refused, since
  certificate policies are not evaluated; ML-DSA is not known.
- Revocation is not checked, as in Go.

`cryptography` takes some 50 ms to import and is imported by the functions that need it.
"""
