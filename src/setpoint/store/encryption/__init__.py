"""Values that nobody can read in the store without the keys: between those who use a store and the store itself.

What may be relied on:

- What is written under an encrypted prefix is in no file, log or history of the store below as plain text.
- Every listed key reads; the first one writes. A value that another key wrote is *stale*: writing it once more, even
  unchanged, encrypts it with the first.
- A value that no key reads is `Unreadable`; all others are as readable as before.
- The prefixes and the layout of what is stored are upstream's: `k8s:enc:<provider>:v1:<key name>:<bytes>`. What is
  inside them is ours, with the place of the revision in front, for it is not known when the value is encrypted.
"""
