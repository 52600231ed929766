"""The loop: informer, work queue, controller, manager."""
