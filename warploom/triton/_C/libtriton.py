"""triton._C.libtriton.nvidia: cuBLAS, by way of PyTorch."""

from __future__ import annotations

import sys
from typing import Any


class CublasLt:
    """Products by PyTorch, which calls cuBLAS.  workspace: memory that isn't needed here."""

    def __init__(self, workspace: Any = None) -> None:
        pass

    def matmul(self, a: Any, b: Any, c: Any) -> None:
        """c = a @ b.T, of tensors of 2 axes: floats, of 8 bits too, which are summed in float32."""
        import torch

        if a.element_size() > 1:
            torch.matmul(a, b.T, out=c)
        elif a.is_cuda:
            one = torch.ones((), device=a.device)
            c.copy_(torch._scaled_mm(a, b.T, one, one, out_dtype=torch.bfloat16))
        else:
            c.copy_(a.float() @ b.T.float())

    def gemm(self, a: Any, b: Any, c: Any, d: Any, alpha: float, beta: float) -> None:
        """d = alpha · a @ b.T + beta · c."""
        self.matmul(a, b, d)
        d.mul_(alpha)
        if beta:
            d.add_(c, alpha=beta)


class ir:
    """The module of that name, as far as PyTorch calls it before it asks a kernel what it writes."""

    @staticmethod
    def context() -> None:
        return None

    @staticmethod
    def load_dialects(context: None) -> None:
        return None


class nvidia:
    """The module of that name; `cublas` is one below it."""

    class cublas:
        CublasLt = CublasLt


__path__: list[str] = []  # a package, for `import triton._C.libtriton.nvidia`
sys.modules[f"{__name__}.nvidia"] = nvidia  # type: ignore[assignment]
