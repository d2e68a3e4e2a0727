"""Loads, stores, atomics, block pointers, descriptors."""
# ruff: noqa
# The marks stay on the lines they mark:
# fmt: off

import warploom as wl
import warploom.language as tl
from tests.errors.bad import bad


@bad("*f16 i32")
def load_of_number(p, n):
    x = tl.load(n)  # error[not-a-pointer]: load needs a pointer, found i32


@bad("*f16")
def load_of_loaded(p):
    x = tl.load(tl.load(p) + 1)  # error[not-a-pointer]: load needs a pointer, found f16


@bad("*f16 i32")
def store_swapped(p, n):
    tl.store(n, p)  # error[not-a-pointer]: store needs a pointer, found i32


@bad("*f16")
def multiples_of_another_rank(p):
    tl.multiple_of(p + tl.arange(0, 64), [1, 16])  # error[multiple-of]: tile<64xptr<f16>> has 1 axis, 2 divisors are given


@bad("*f16 i32")
def load_mask_shape(p, n):
    offs = tl.arange(0, 64)
    x = tl.load(p + offs, mask=tl.arange(0, 32) < n)  # error[mask-shape]: shapes 64 and 32 can't be broadcast


@bad("*f16 i32")
def scalar_load_with_tile_mask(p, n):
    x = tl.load(p, mask=tl.arange(0, 32) < n)  # error[mask-shape]: load's mask of shape 32 does not fit pointers of shape scalar


@bad("*f16 i32")
def store_mask_shape(p, n):
    offs = tl.arange(0, 64)
    tl.store(p + offs, 0.0, mask=offs[:, None] < n)  # error[mask-shape]: store's mask of shape 64x1


@bad("*f16 i32")
def mask_of_integers(p, n):
    offs = tl.arange(0, 64)
    x = tl.load(p + offs, mask=offs)  # error[mask-dtype]: load's mask is tile<64xi32>, not a tile of truth values


@bad("*f16 i32")
def other_without_mask(p, n):
    x = tl.load(p + tl.arange(0, 64), other=0.0)  # error[other-without-mask]: load's other has no mask


@bad("*f16 i32")
def other_shape(p, n):
    offs = tl.arange(0, 64)
    x = tl.load(p + offs, mask=offs < n, other=tl.zeros((32,), tl.float16))  # error[other-shape]: load's other of shape 32


@bad("*f16 i32")
def store_shape(p, n):
    tl.store(p + tl.arange(0, 64), tl.zeros((32,), tl.float16))  # error[store-shape]: the stored value of shape 32


@bad("*f16 i32")
def store_tile_to_scalar(p, n):
    tl.store(p, tl.arange(0, 4))  # error[store-shape]: the stored value of shape 4 does not fit pointers of shape scalar


@bad("*f16")
def cache_hint(p):
    x = tl.load(p, cache_modifier=".fast")  # error[cache-hint]: cache_modifier='.fast'


@bad("*f16")
def boundary_check_of_pointers(p):
    x = tl.load(p + tl.arange(0, 8), boundary_check=(0,))  # error[boundary-check]: need a block pointer


@bad("*f16 i32")
def masked_block_pointer(p, n):
    b = tl.make_block_ptr(p, (n,), (1,), (0,), (64,), (0,))
    x = tl.load(b, mask=tl.arange(0, 64) < n)  # error[block-pointer-mask]: a block pointer takes no mask or other


@bad("*f16 i32")
def block_pointer_rank(p, n):
    b = tl.make_block_ptr(p, (n, n), (1,), (0, 0), (64, 64), (1, 0))  # error[block-rank]: strides has 1 entries, the block 2 axes


@bad("*f16 i32")
def block_pointer_order(p, n):
    b = tl.make_block_ptr(p, (n, n), (n, 1), (0, 0), (64, 64), (0, 0))  # error[block-order]: order (0, 0) is no permutation


@bad("*f16 i32")
def block_pointer_at_half(p, n):
    b = tl.make_block_ptr(p, (n, n), (n, 1), (n / 2, 0), (64, 64), (1, 0))  # error[block-integer]: expected integers as offsets, found f32


@bad("*f16 i32")
def advance_by_half(p, n):
    b = tl.make_block_ptr(p, (n,), (1,), (0,), (64,), (0,))
    b = tl.advance(b, (1.5,))  # error[block-integer]: expected integers as offsets, found 1.5


@bad("*f16 i32")
def descriptor_at_half(p, n):
    d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [64, 64])
    x = d.load([n / 2, 0])  # error[block-integer]: expected integers as offsets, found f32


@bad("*f16 i32")
def advance_of_pointer(p, n):
    b = tl.advance(p, (0, n))  # error[not-a-block-pointer]: advance takes a block pointer, found ptr<f16>


@bad("*f16 i32")
def padding_option(p, n):
    b = tl.make_block_ptr(p, (n,), (1,), (0,), (64,), (0,))
    x = tl.load(b, boundary_check=(0,), padding_option="one")  # error[padding]: padding_option='one'


@bad("*f16 i32")
def descriptor_stride(p, n):
    d = tl.make_tensor_descriptor(p, [n, n], [1, n], [64, 64])  # error[descriptor-stride]: the last stride of a descriptor is 1, found i32


@bad("*f16 i32")
def descriptor_rank(p, n):
    d = tl.make_tensor_descriptor(p, [n], [1], [2, 64])  # error[block-rank]: shape has 1 entries


@bad("*f16 i32")
def descriptor_axes(p, n):
    d = tl.make_tensor_descriptor(p, (n, n, n, n, n, n), (1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 8))  # error[view-rank]: a descriptor of 6 axes


@bad("*f16 i32")
def descriptor_offsets(p, n):
    d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [64, 64])
    x = d.load([0])  # error[block-rank]: offsets has 1 entries, the block 2 axes


@bad("*f16 i32")
def descriptor_of_pointer(p, n):
    x = tl.load_tensor_descriptor(p, [0])  # error[not-a-descriptor]: load_tensor_descriptor takes a tensor descriptor


@bad("*f16 i32")
def descriptor_attribute(p, n):
    d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [64, 64])
    x = d.reduce([0, 0])  # error[attribute]: a Descriptor has no attribute reduce


@bad("*f16 i32")
def descriptor_store_shape(p, n):
    d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [64, 64])
    d.store([0, 0], tl.zeros((32, 64), tl.float16))  # error[store-shape]: the stored value of shape 32x64


@bad("*f16")
def atomic_and_of_floats(p):
    x = tl.atomic_and(p, 1)  # error[atomic-dtype]: atomic_and of f16


@bad("*i32")
def atomic_order(p):
    x = tl.atomic_add(p, 1, sem="seq_cst")  # error[atomic-order]: sem='seq_cst'


@bad("*i32")
def atomic_scope(p):
    x = tl.atomic_add(p, 1, scope="warp")  # error[atomic-order]: scope='warp'


@bad("*f16 i32")
def descriptor_offset_without_list(p, n):
    d = tl.make_tensor_descriptor(p, [n], [1], [64])
    x = d.load(n)  # error[block-rank]: offsets is i32


@bad("*f16")
def boundary_check_of_no_axis(p):
    b = tl.make_block_ptr(p, (64, 64), (64, 1), (0, 0), (64, 64), (1, 0))
    x = tl.load(b, boundary_check=(2,), padding_option="nan")  # error[axis]: axis 2 of a tile of rank 2
