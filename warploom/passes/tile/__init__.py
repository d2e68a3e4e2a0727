"""TILE → TILE: one sequential program over tiles.  Nothing here knows of tasks."""
