"""The node agent; simulated nodes are a fleet of them in one.

What may be relied on:
- a Pod's status is what a kubelet would say, and is written only when it says something new: a Pod that starts at once
  goes from Pending to Running in one write;
- everything that waits is a time in one queue: no task and no timer for each Pod;
- nothing is remembered but what is stored: an agent that starts again finds its containers where they would be by now;
- nothing that a Pod runs leaves the process.
"""
