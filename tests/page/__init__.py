"""The page in a browser. A package, so that its files share one browser (see `browser`)."""
