"""What the server itself keeps in order, without any controller: its own objects, statuses of its configuration,
reservations, the age of Events.

Each loop is level-triggered: it looks at what is there, not at what happened, and doing its work twice does no harm.
Several servers may run the same loops on one store.
"""
