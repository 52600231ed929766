"""Objects whose owners are gone go too.

What holds:
- nothing is deleted on hearsay: before an object is deleted, it and each of its owners are asked for at the server, and
  the deletion holds only for the very object that was looked at;
- an owner is its uid: an object of the same name that was made later is nobody's owner;
- an owner that asked to go last (foreground) goes when no dependent that blocks it is left; one that asked to leave its
  dependents alone (orphan) goes when they have forgotten it.

`graph` knows who refers to whom and says whom to look at; `monitors` tell it what there is; `live` speaks to the
server; `deleting` and `orphaning` decide; `collector` puts them together.
"""
