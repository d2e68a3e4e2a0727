"""Programs in the idioms of Triton's tutorials and of triton-shared's examples: kernels with the host code that
launches them, and nothing of Warploom's in them.  Each has `check(device, n)`, which launches and compares with
PyTorch; tests/triton/test_tutorials.py and tests/gpu/test_as_triton.py run them through the door."""
