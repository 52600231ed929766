"""Encryption of stored values, between the API server and any store backend.

Guarantees:

- A value written under an encrypted prefix never appears as plain text in a file, log or history of the backend.
- Every configured key can decrypt; the first one encrypts. A value that another key encrypted is *stale*: writing it
  again, even unchanged, encrypts it with the first key.
- A value that no key can decrypt is returned as `Unreadable`; all other values stay readable.
- The prefix and the layout of a stored value are upstream's: `k8s:enc:<provider>:v1:<key name>:<bytes>`. The plain text
  inside differs: it starts with the offset of the revision stamp, because the revision is not known yet when the value
  is encrypted."""
