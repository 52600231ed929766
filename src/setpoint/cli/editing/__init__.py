"""Edit objects in the user's editor: `edit`, `create --edit`, `apply edit-last-applied`.

No input is lost: what cannot be saved is opened again with the reasons, or stays in a file whose name is printed.
"""

from setpoint.cli.editing.modes import edit_before_create, edit_last_applied, edit_objects

__all__ = ["edit_before_create", "edit_last_applied", "edit_objects"]
