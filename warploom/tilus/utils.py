"""tilus.utils: helpers for hosts and kernels."""

from warploom.frontend.language import cdiv

__all__ = ["cdiv"]
