"""The built-in controllers, one module or package per kind.

Each declares its own watches: a builder takes a Manager, requests the informers it needs and returns the Controller.
Controllers access the API only through the client, hold no state that must survive a restart, and never modify cached
objects.
"""
