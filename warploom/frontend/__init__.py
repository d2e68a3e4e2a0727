"""Python source → TILE: the only place that knows Python's ast."""
