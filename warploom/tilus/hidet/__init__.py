"""tilus.hidet: what Tilus files take from the compiler below it, dtypes and their types."""

from warploom.tilus.hidet import ir as ir
