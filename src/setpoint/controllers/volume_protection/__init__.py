"""What is in use does not go away: finalizers keep claims that Pods use, and volumes that claims are bound to.

The API server puts the finalizers on when the objects are created; here they are taken off when nobody needs them.
"""
