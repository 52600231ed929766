"""Claims on devices: made for Pods from templates, kept while somebody uses them, given back afterwards."""
