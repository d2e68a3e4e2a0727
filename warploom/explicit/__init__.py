"""The explicit door: `wl.Script`, in which users place every role and barrier (translate.py)."""
