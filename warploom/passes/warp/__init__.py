"""CHANNEL → WARP: one region a task, with shared memory, mbarriers, TMA and wgmma explicit."""
