"""One verb a file: from a request to an answer."""
