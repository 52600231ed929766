"""The page: a live view of a cluster in the browser, over one WebSocket for each tab.

Callers may rely on these guarantees:
- the page reads and writes only through a `Client` with the rights of the session's user, so authorization, admission
  and audit apply as to every other client;
- nothing is computed while no tab watches: a feed runs from its first subscriber to its last;
- a tab that reads slowly costs bounded memory: it gets the latest state of each item, and the number of log entries
  that it missed;
- no cookie, no request to another origin, no shell of the host.

`feed.py` is the interface between the socket and the feeds in `feeds/`. `catalog.py` lists the feeds. The sources of
what runs in the browser are in `page/` of the repository, and the built files in `static/`.
"""
