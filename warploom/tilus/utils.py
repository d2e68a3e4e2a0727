"""tilus.utils: helpers for hosts and kernels."""

from warploom.language import cdiv

__all__ = ["cdiv"]
