"""Verification of certificate chains by the rules, and with the error messages, of Go's `crypto/x509`.

OpenSSL's rules differ in both directions from those of Kubernetes, and they depend on how OpenSSL was built. This
package only evaluates certificates: no I/O, no clock, no trust store.

- A chain ends at a certificate of the given pool, of any kind: a root, an intermediate, or the leaf itself.
- Signatures, validity, basic constraints, path lengths, name constraints, extended key usages along the whole chain and
  unknown critical extensions are checked; names are taken from subjectAltName only.
- Everything that Go rejects is rejected. Stricter than Go: certificates with `requireExplicitPolicy` are rejected,
  since certificate policies are not evaluated; ML-DSA is not supported.
- Revocation is not checked, as in Go.

`cryptography` takes some 50 ms to import and is imported by the functions that need it.
"""
