"""Dynamic admission: policies in CEL, and webhooks.

Callers may rely on these guarantees:
- A change of a policy, binding, webhook configuration, parameter or namespace applies to every write that starts after
  the change is visible to readers.
- A write to which no policy or webhook applies costs a dictionary lookup. Expressions are compiled once, when the first
  write needs them.
- Policies and webhooks see objects in the version that matched, and their changes are converted back; stored objects
  are never modified.
"""
