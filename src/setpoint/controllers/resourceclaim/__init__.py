"""ResourceClaims: created from templates for Pods, reserved while in use, deallocated afterwards."""
