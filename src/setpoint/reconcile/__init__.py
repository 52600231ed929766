"""Building blocks of control loops: informer, workqueue, controller, manager, leader election, event recorder.

A controller may rely on these guarantees:
- Its informers have delivered every existing object before its first reconcile, and deliver every later change in
  order.
- Objects in a cache are shared and read-only.
- A key is never reconciled concurrently with itself. A key that is added during its own reconcile is reconciled again
  afterwards, so no change is lost; any number of adds coalesce into one reconcile.
- An exception in a reconcile is contained and logged, and the key is requeued with exponential backoff. Other keys are
  not affected.
- This package does I/O only through a client; clock and randomness are injected.
"""

from setpoint.reconcile.controller import Controller, Reconcile, Result
from setpoint.reconcile.event_series import SeriesRecorder
from setpoint.reconcile.events import EventRecorder
from setpoint.reconcile.informer import Informer
from setpoint.reconcile.keys import key_of, split_key
from setpoint.reconcile.leader_election import ElectionTimes, LeaderElection, LeadershipLost
from setpoint.reconcile.manager import Manager
from setpoint.reconcile.workqueue import RateLimitingQueue, ShutDown, WorkQueue

__all__ = [
    "Controller",
    "ElectionTimes",
    "EventRecorder",
    "Informer",
    "LeaderElection",
    "LeadershipLost",
    "Manager",
    "RateLimitingQueue",
    "Reconcile",
    "Result",
    "SeriesRecorder",
    "ShutDown",
    "WorkQueue",
    "key_of",
    "split_key",
]
