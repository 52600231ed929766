"""The plugins, one per module, under upstream's names. They need NumPy and are imported when the first node appears."""
