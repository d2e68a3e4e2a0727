"""What all tests share."""

import os

# Before NumPy is imported: the suite's workers take all cores already, and tiles are too small to be worth
# several threads each, which wait for one another busily.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Who works on the compiler wants to see where in it a kernel was refused.
os.environ.setdefault("WARPLOOM_TRACEBACK", "1")

# No test reads or writes the user's cache; those of the cache have one of their own.
os.environ["WARPLOOM_CACHE"] = "off"
