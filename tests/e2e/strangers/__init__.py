"""Products as strangers write them: Triton-style kernels in the shapes met in the wild, each with arguments and a float64 reference."""
