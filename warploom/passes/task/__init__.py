"""TILE → TASK → CHANNEL: which task runs what, which part of each tile, and what crosses between tasks."""
