"""The built-in course: `course.yaml`, one Markdown file for each lesson, manifests, and an operator that runs in one.

docs/lessons.md describes the form of the files; `setpoint lesson test` checks them.
"""
