"""A class: many learners, each with clusters of their own, in a few processes of one machine.

The *front* (`front.py`) is the HTTP server that browsers and `kubectl` reach. It lets learners in, serves the files of
the page, and passes the WebSocket of each learner on to a *worker* (`worker.py`), a process that runs the clusters and
the page server of its seats. A *seat* (`seats.py`) is a learner's place: a cluster, and one for each lesson that was
begun lately. All of them are forks (`cluster/forks.py`) that start empty, connect to nothing, and sleep while no one
uses them.
"""
