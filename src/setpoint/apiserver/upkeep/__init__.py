"""Repair loops of the server, which run without controllers: its own objects, statuses of its configuration,
reservations, and the expiry of Events.

Each loop is level-triggered and idempotent: it acts on the present state, not on events. If several servers share a
store, an election decides which one runs the loops that concern the cluster; its writes are fenced.
"""
