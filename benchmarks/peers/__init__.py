"""One module an implementation: `NAME`, `KINDS` (of cases that it takes; default: only "gemm"), and
`candidates(data)` -> its configurations for the case.

An empty list means that the implementation does not take the case.  A configuration's `run(i)` must
compute from the inputs of set i, on the current stream, what `data.reference(i)` does: into
`data.outputs[i]`, or into a tensor of its own, which it returns.
"""
