"""One module an implementation: `NAME`, and `candidates(data)` -> its configurations for the case.

An empty list means that the implementation does not take the case.  A configuration's `run(i)` must
compute `data.c[i] = data.a[i] @ data.b[i]` on the current stream.
"""
