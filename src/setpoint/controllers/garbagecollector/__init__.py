"""Deletes objects whose owners are gone.

Guarantees:
- Before an object is deleted, it and each of its owners are read from the server, and the deletion is conditional on
  the uid and version that were read.
- An owner is identified by its uid: a later object with the same name does not count.
- An owner that is deleted in the foreground is removed when no blocking dependent is left; one whose dependents are
  orphaned is removed when they no longer refer to it.

`graph` holds the ownership graph and decides what to reconcile; `deleting` decides what is deleted or orphaned and does
the requests; `collector` feeds the graph and assembles the parts.
"""
