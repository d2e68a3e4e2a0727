# mypy: ignore-errors
"""Dtypes of fewer than 8 bits: packed on the host, loaded by kernels as numbers."""

import ml_dtypes
import numpy as np
import pytest

import warploom.tilus as tilus
from warploom.errors import CompileError
from warploom.explicit.narrow import NARROW
from warploom.tilus import float16, float32, int32, uint4b, uint8
from warploom.tilus.hidet.ir import dtypes
from warploom.tilus.hidet.ir.type import void_p


class Loaded(tilus.Script):
    """Rows of a matrix of packed elements, doubled; all of the view's axes, or two of three."""

    def __init__(self, dtype, dims):
        super().__init__()
        self.dtype, self.dims = dtype, dims

    def __call__(self, m: int32, n: int32, x_ptr: ~uint8, out_ptr: ~float32):
        self.attrs.blocks = [tilus.utils.cdiv(m, 8)]
        self.attrs.warps = 2
        row = self.blockIdx.x * 8
        out = self.global_view(out_ptr, dtype=float32, shape=[m, n])
        if self.dims:
            x = self.global_view(x_ptr, dtype=self.dtype, shape=[m, 2, n])
            tile = self.load_global(x, offsets=[row, 1, 0], shape=[8, 32], dims=[0, 2])
        else:
            x = self.global_view(x_ptr, dtype=self.dtype, shape=[m, n])
            tile = self.load_global(x, offsets=[row, 0], shape=[8, 32])
        self.static_assert(x.dtype == self.dtype and self.dtype.nbits < 8, "what it is can be read")
        self.store_global(out, self.cast(tile, dtype=float32) * 2.0, offsets=[row, 0])


@pytest.mark.parametrize("dims", [False, True])
@pytest.mark.parametrize("name", NARROW)
def test_packed_elements(name, dims):
    dtype, rng = NARROW[name], np.random.default_rng(0)
    shape = (11, 2, 29) if dims else (11, 29)
    packed = rng.integers(0, 256, -(-np.prod(shape) * dtype.bits // 8), np.uint8)
    numbers = dtype.unpack(packed, shape)
    out = np.zeros((11, 29), np.float32)
    Loaded(dtype, dims)(11, 29, packed, out)
    assert np.array_equal(out, 2 * (numbers[:, 1] if dims else numbers).astype(np.float32))


def test_they_compile_and_are_proved():
    for name in ("int4b", "uint3b", "float6_e3m2"):
        args = 11, 32, np.zeros(11 * 32, np.uint8), np.zeros((11, 32), np.float32)
        compiled = Loaded(NARROW[name], False).compile_for(*args)
        assert compiled.check().ok and "ld.global" in compiled.ptx


@pytest.mark.parametrize("name", NARROW)
def test_what_is_packed_is_unpacked(name):
    dtype = NARROW[name]
    every = dtype.numbers()
    for shape in ((len(every),), (len(every), 8), (2, len(every))):
        x = np.resize(every, shape)
        assert np.array_equal(dtype.unpack(dtype.pack(x), shape), x)
    assert (dtype.min_value, dtype.max_value) == (every.min(), every.max())
    low, high = dtype.unpack(dtype.pack(np.array([-1e9, 1e9])), (2,))
    assert (low, high) == dtype.limits


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("float4_e2m1", "float4_e2m1fn"), ("float6_e3m2", "float6_e3m2fn"), ("float6_e2m3", "float6_e2m3fn")],
)  # fmt: skip
def test_floats_are_rounded_as_ml_dtypes_does(name, theirs):
    x = np.random.default_rng(1).standard_normal(4000).astype(np.float32) * 2
    x[:64] = np.arange(64) / 16  # ties among them
    mine = NARROW[name].unpack(NARROW[name].pack(x), x.shape)
    assert np.array_equal(mine, x.astype(getattr(ml_dtypes, theirs)).astype(np.float32))


class Dequantized(tilus.Script):
    """A product with 4-bit weights: codes less 8, times a scale of each column."""

    def __call__(
        self, m: int32, k: int, n: int, a_ptr: ~float16, w_ptr: ~uint4b, s_ptr: ~float16, c_ptr: ~float16
    ):  # fmt: skip
        self.attrs.blocks = [tilus.utils.cdiv(m, 16), tilus.utils.cdiv(n, 32)]
        self.attrs.warps = 2
        row, column = self.blockIdx.x * 16, self.blockIdx.y * 32
        a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        w = self.global_view(w_ptr, dtype=uint4b, shape=[k, n])
        scales = self.global_view(s_ptr, dtype=float16, shape=[1, n])
        acc = self.register_tensor(dtype=float32, shape=[16, 32], init=0.0)
        for at in range(0, k, 32):
            codes = self.load_global(w, offsets=[at, column], shape=[32, 32])
            part = self.load_global(a, offsets=[row, at], shape=[16, 32])
            acc = self.dot(part, codes.to(float16) - 8.0, acc)
        acc = acc * self.load_global(scales, offsets=[0, column], shape=[1, 32]).to(float32)
        c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        self.store_global(c, acc.to(float16), offsets=[row, column])


def test_a_product_with_weights_of_four_bits():
    rng = np.random.default_rng(2)
    a, codes = rng.integers(-3, 4, (20, 64)).astype(np.float16), rng.integers(0, 16, (64, 48))
    scales, c = (1 + rng.integers(0, 3, 48)).astype(np.float16), np.zeros((20, 48), np.float16)
    Dequantized()(20, 64, 48, a, uint4b.pack(codes), scales, c)
    assert np.array_equal(c, (a.astype(float) @ (codes - 8.0) * scales).astype(np.float16))


def test_tensors_of_the_host():
    torch = pytest.importorskip("torch")
    x = tilus.from_torch(torch.tensor([[-3.2, 1.0, 9.0, 2.5]], device="cpu"))
    four = x.to(tilus.int4b)
    assert four.storage.tolist() == [[0x1D, 0x27]]
    assert four.to(tilus.int32).torch().tolist() == [[-3, 1, 7, 2]]
    again = tilus.view_torch(four.storage, dtype=tilus.i4, shape=[1, 4])
    assert again.to(tilus.float32).torch().tolist() == [[-3, 1, 7, 2]]
    assert tilus.full([3], 2, tilus.f4e2m1).to(tilus.float16).torch().tolist() == [2, 2, 2]
    assert tilus.ones([2, 3]).view(dtype=tilus.int32).torch()[0, 0] == 0x3F800000
    x, out = tilus.randint(-8, 8, [11, 32], dtype=tilus.int4b), tilus.empty([11, 32])
    Loaded(tilus.int4b, False)(11, 32, x, out)
    assert (out.torch() == 2 * x.to(tilus.float32).torch()).all()
    assert dtypes.int4b is tilus.int4b and void_p is tilus.void_p


class Refused(tilus.Script):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def __call__(self, p: ~uint8):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g = self.global_view(p, dtype=uint4b, shape=[8, 8])
        x = self.load_global(g, offsets=[0, 0], shape=[8, 8])
        if self.what == "store":
            self.store_global(g, x, offsets=[0, 0])
        if self.what == "cast":
            x.to(uint4b)
        if self.what == "copy":
            self.copy_async(g, self.shared_tensor(dtype=uint8, shape=[8, 8]), offsets=[0, 0])
        if self.what == "element":
            self.printf("%d", g[0, 0].item())
        if self.what == "axes":
            self.load_global(g, offsets=[0], shape=[8])


@pytest.mark.parametrize(
    ("what", "code", "advice"),
    [
        ("store", "narrow-view", "by a view of uint8"),
        ("cast", "narrow-dtype", "pack bytes by"),
        ("copy", "narrow-view", "by a view of uint8"),
        ("element", "narrow-view", "by a view of uint8"),
        ("axes", "view-rank", "one offset for each axis"),
    ],
)
def test_what_they_can_not(what, code, advice):
    with pytest.raises(CompileError) as e:
        Refused(what).compile(["*u8:16"])
    assert e.value.code == code and advice in str(e.value.help)
