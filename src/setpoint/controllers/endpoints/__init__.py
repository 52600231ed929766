"""Endpoints: the Pods behind each Service that has a selector, in one object, for those who do not know slices."""
