"""Admission by what users configure: policies in CEL, and webhooks.

What callers may rely on:

- A change of a policy, a binding, a webhook configuration, a parameter or a namespace counts for every write that
  begins after it is visible to readers.
- A write that no policy or webhook concerns costs a look into a dictionary. Expressions are compiled when the first
  write meets them, and once.
- Objects are shown in the version that matched, and changes are taken back from it; what is stored is never touched.
"""
