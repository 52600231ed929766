"""The robustness suite: a control plane on three machines, clients that record what they see, faults, and checkers.

`python -m tests.robustness --help` runs it; `docs/robustness.md` describes it. The parts:

- `history`: the records of a run and their file; `commits`: questions about etcd's log in it;
- `register_checks`, `watch_checks`, `cluster_checks`: pure functions from a history to violations;
- `network`, `etcd_members`, `processes`, `machines`: three machines as network namespaces, or as loopback addresses;
- `etcd_log`: the log of all commits, which etcd itself reports;
- `recording_client`, `workload`, `kubectl_loop`: clients and what they do;
- `faults`, `shifted_clock`: what is broken;
- `run`, `report`: one run, and what it prints.
"""
