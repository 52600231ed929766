"""The terminal of the page: a shell of our own on a disk in memory, with `setpoint` and `kubectl` as programs.

Nothing of the machine that serves the page is reachable from it:
- the shell is the one of simulated containers (`node/runtime/shell`), with programs that work on text and files;
- the files are those of a `Workspace`;
- commands run in this process on the event loop (`cli.main.run_within`), with the client of the session's user;
  commands that need files, programs or the network of the machine are refused (`CommandIO.on_host`).

`conversation.py` is the conversation that `setpoint up` and `setpoint page` hand to the page server.
"""
