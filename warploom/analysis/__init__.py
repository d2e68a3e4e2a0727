"""What is known of a function: structure, accesses, ranges, what may be cut, fused or overlapped.

Decides nothing: choices are made in schedule/, and passes/ applies them.  Analyses read IR and the target
alone."""
