"""Objects and their history as people are shown them, as values and text: changed fields, answers to "why", and
plans of undo.

Pure: no I/O and no asyncio. The API server, the command line and the page render the same values, so that they cannot
contradict each other.
"""
