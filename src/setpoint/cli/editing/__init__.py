"""Objects changed in the user's editor: `edit`, `create --edit`, `apply edit-last-applied`.

Nothing that was typed is lost: what cannot be saved is put before the user again with the reasons, or stays in a file
whose name is told.
"""

from setpoint.cli.editing.modes import edit_before_create, edit_last_applied, edit_objects

__all__ = ["edit_before_create", "edit_last_applied", "edit_objects"]
