"""The Pod security standards: which Pods a namespace takes, by its labels."""
