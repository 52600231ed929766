"""The node agent. Simulated nodes are a fleet that one agent runs.

Guarantees:
- the status of a Pod is the one that a kubelet would report, and is written only when it changes: a Pod that starts at
  once goes from Pending to Running in one write;
- all timers are entries of one queue: there is no task and no timer per Pod;
- the only state is what the API stores: a restarted agent restores its containers as they would be by now;
- programs of simulated Pods do not access files, processes or the network outside of the agent's process.
"""
