"""The past of the cluster: what each object was at each revision, and who changed it.

Callers may rely on the following:

- What can be read is exact: an object at a revision is what a reader saw at that revision.
- What cannot be known is an error (`Expired`, 410) that names the oldest revision that can be read, never a guess.
- Reading the past changes nothing, and its cost falls on the reader: no write does work for it.
"""
