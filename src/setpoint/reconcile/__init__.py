"""The machinery of control loops: informer, cache, workqueue, controller, manager, leader election, event recorder.

What a controller may rely on:
- its informers have seen everything that was there before its first reconcile, and see every later change in order;
- objects in a cache are shared: they are read and never changed;
- a key is never reconciled twice at the same time, and one that was added while it was being reconciled is reconciled
  again afterwards: no change is lost, however many fall together;
- a reconcile that raises is contained, logged and tried again, later and later; it never takes another one along;
- nothing here speaks to anything but a client, and all time and randomness is handed in.
"""

from setpoint.reconcile.controller import Controller, Reconcile, Result
from setpoint.reconcile.event_series import SeriesRecorder
from setpoint.reconcile.events import EventRecorder
from setpoint.reconcile.informer import Informer
from setpoint.reconcile.keys import key_of, split_key
from setpoint.reconcile.leader_election import ElectionTimes, LeaderElection, LeadershipLost
from setpoint.reconcile.manager import Manager
from setpoint.reconcile.rate_limiting import RateLimitingQueue
from setpoint.reconcile.workqueue import ShutDown, WorkQueue

__all__ = [
    "Controller", "ElectionTimes", "EventRecorder", "Informer", "LeaderElection", "LeadershipLost", "Manager",
    "RateLimitingQueue", "Reconcile", "Result", "SeriesRecorder", "ShutDown", "WorkQueue", "key_of", "split_key",
]  # fmt: skip
