"""The built-in controllers, one module (or one folder of steps) per kind.

Each states its own watches: a builder takes a Manager, asks it for the informers it needs, and returns the Controller.
Controllers know the system through the client alone, hold no state that a restart would miss, and never change what
a cache hands them.
"""
