"""The feeds and conversations of the page, one module each."""
