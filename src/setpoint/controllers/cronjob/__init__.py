"""CronJobs: create a Job for each scheduled time.

The name of a Job is derived from its scheduled time, so no time is served twice.
"""
