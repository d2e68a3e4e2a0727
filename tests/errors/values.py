"""Shapes, dtypes, operators, attributes."""
# ruff: noqa
# The marks stay on the lines they mark:
# fmt: off

import numpy as np
import warploom as wl
import warploom.language as tl
import warploom.triton as triton
import warploom.triton.language as ttl
from tests.errors.bad import bad


@bad("*f16", A=64, B=32)
def add_of_shapes(p, A: tl.constexpr, B: tl.constexpr):
    x = tl.arange(0, A)
    y = tl.arange(0, B)
    z = x + y  # error[shape-mismatch]: shapes 64 and 32 can't be broadcast together


@bad("*f16")
def gather_by_floats(p):
    x = tl.arange(0, 64)
    y = tl.gather(x, x.to(tl.float32), 0)  # error[gather-index]: gather by tile<64xf32>


@bad("*f16")
def dot_inner_size(p):
    a = tl.zeros((128, 64), tl.bfloat16)
    b = tl.zeros((32, 256), tl.bfloat16)
    c = tl.dot(a, b)  # error[dot-shape]: dot operands disagree on K: a is 128x64, b is 32x256


@bad("*f16")
def dot_of_rank_one(p):
    c = tl.dot(tl.arange(0, 16), tl.arange(0, 16))  # error[dot-rank]: dot needs two tiles of 2 axes, or of 3


@bad("*f16")
def dot_of_two_batches(p):
    a = tl.zeros((2, 16, 16), tl.float16)
    c = tl.dot(a, tl.zeros((4, 16, 16), tl.float16))  # error[dot-shape]: dot operands disagree on the batch


@bad("*f16")
def dot_of_a_batch_and_a_matrix(p):
    a = tl.zeros((2, 16, 16), tl.float16)
    c = tl.dot(a, tl.zeros((16, 16), tl.float16))  # error[dot-rank]: dot needs two tiles of 2 axes, or of 3


@bad("*f16")
def dot_of_two_dtypes(p):
    a = tl.zeros((16, 16), tl.float16)
    b = tl.zeros((16, 16), tl.bfloat16)
    c = tl.dot(a, b)  # error[dot-dtype]: dot can't multiply f16 by bf16


@bad("*f16")
def dot_of_integers(p):
    a = tl.zeros((16, 16), tl.int32)
    c = tl.dot(a, a)  # error[dot-integer]: dot multiplies floats and 8-bit integers, not i32


@bad("*f16")
def dot_scaled_scales(p):
    a = tl.zeros((16, 64), tl.float8e5)
    s = tl.full((16, 4), 127, tl.uint8)
    c = tl.dot_scaled(a, s, "e5m2", tl.trans(a), None, "e5m2")  # error[dot-scale]: scales of u8 for 16 rows of 64 are 16x2


@bad("*f16")
def dot_scaled_scales_not_by_32(p):
    a = tl.zeros((16, 48), tl.float8e5)
    s = tl.full((16, 1), 127, tl.uint8)
    c = tl.dot_scaled(a, s, "e5m2", tl.trans(a), None, "e5m2")  # error[dot-scale]: 16 rows of 48 are 16x1.5


@bad("*f16")
def dot_scaled_format(p):
    a = tl.zeros((16, 64), tl.float8e5)
    c = tl.dot_scaled(a, None, "e3m2", tl.trans(a), None, "e5m2")  # error[dot-format]: lhs_format='e3m2'


@bad("*f16")
def dot_scaled_result(p):
    a = tl.zeros((16, 64), tl.float8e5)
    c = tl.dot_scaled(a, None, "e5m2", tl.trans(a), None, "e5m2", out_dtype=tl.float16)  # error[dot-out]: dot_scaled into f16


@bad("*f16")
def dot_scaled_rank(p):
    a = tl.zeros((64,), tl.float8e5)
    c = tl.dot_scaled(a, None, "e5m2", a, None, "e5m2")  # error[dot-rank]: dot_scaled needs two 2-D tiles


@bad("*f16")
def dot_accumulator_shape(p):
    a = tl.zeros((16, 16), tl.float16)
    acc = tl.zeros((16, 32), tl.float32)
    c = tl.dot(a, a, acc)  # error[dot-acc]: dot accumulates 16x16xf32 into tile<16x32xf32>


@bad("*f16")
def dot_result_dtype(p):
    a = tl.zeros((16, 16), tl.float16)
    c = tl.dot(a, a, out_dtype=tl.bfloat16)  # error[dot-out]: dot into bf16


@bad("*f16")
def dot_precision(p):
    a = tl.zeros((16, 16), tl.float32)
    c = tl.dot(a, a, input_precision="exact")  # error[dot-precision]: input_precision='exact'


@bad("*f16 i32")
def arange_bounds(p, n):
    x = tl.arange(0, n)  # error[constexpr-required]: arange's end must be a constexpr integer, found i32


@bad("*f16")
def arange_empty(p):
    x = tl.arange(4, 4)  # error[arange-empty]: arange(4, 4) is empty


@bad("*f16", BLOCK=1 << 24)
def more_elements_than_a_tile_has(p, BLOCK: tl.constexpr):
    tl.store(p + tl.arange(0, BLOCK), 0.0)  # error[tile-size]: 16777216 elements, a tile at most 1048576


@bad("*f16")
def more_elements_by_broadcast(p):
    x = tl.arange(0, 2048)[:, None]
    y = x + tl.arange(0, 2048)[None, :]  # error[tile-size]: 4194304 elements, a tile at most 1048576


@bad("*f16 i32")
def shape_at_run_time(p, n):
    x = tl.zeros((16, n), tl.float32)  # error[constexpr-required]: the shape must be a constexpr integer


@bad("*f16")
def empty_shape(p):
    x = tl.zeros((16, 0), tl.float32)  # error[shape-size]: the shape (16, 0) has a size below 1


@bad("*f16")
def no_dtype(p):
    x = tl.zeros((16, 16), "float32")  # error[not-a-dtype]: full's dtype must be a dtype, found 'float32'


@bad("*f16")
def reshape_size(p):
    x = tl.reshape(tl.arange(0, 64), (8, 9))  # error[reshape]: changes the number of elements


@bad("*f16")
def reshape_of_scalar(p):
    x = tl.reshape(tl.load(p), (1, 1))  # error[not-a-tile]: reshape takes a tile, found f16


@bad("*f16")
def axis_too_large(p):
    x = tl.sum(tl.zeros((8, 8), tl.float32), axis=2)  # error[axis]: axis 2 of a tile of rank 2


@bad("*f16")
def axis_too_negative(p):
    x = tl.zeros((8, 8), tl.float32).max(-3)  # error[axis]: axis -3 of a tile of rank 2


@bad("*f16")
def transpose_of_rank_one(p):
    x = tl.arange(0, 8).T  # error[axis]: trans of a tile of rank 1


@bad("*f16")
def permute_twice_the_same(p):
    x = tl.permute(tl.zeros((8, 8), tl.float32), 0, 0)  # error[axis]: (0, 0) is no permutation


@bad("*f16")
def broadcast_to_smaller(p):
    x = tl.broadcast_to(tl.arange(0, 8), (4, 4))  # error[broadcast]: a tile of 8 can't be broadcast to 4x4


@bad("*f16")
def program_axis(p):
    x = tl.program_id(3)  # error[program-axis]: a grid has axes 0, 1 and 2, not 3


@bad("*f16")
def exp_of_half(p):
    x = tl.exp(tl.load(p))  # error[math-dtype]: exp computes in f32 or f64, found f16


@bad("*i32")
def fdiv_of_integers(p):
    x = tl.fdiv(tl.load(p), 2)  # error[math-dtype]: fdiv of i32 and 2


@bad("*f16")
def div_rn_of_halves(p):
    x = tl.div_rn(tl.load(p), tl.load(p))  # error[math-dtype]: div_rn divides f32 or f64, got f16


@bad("*i32")
def division_of_a_tile_by_a_constant_zero(p):
    i = tl.arange(0, 16)
    tl.store(p + i, i % (4 - 4))  # error[constant-division]: tile<16xi32> % 0 has no result


@bad("*i32")
def division_of_a_number_by_a_constant_zero(p):
    tl.store(p, tl.program_id(0) // 0)  # error[constant-division]: i32 // 0 has no


@bad("*f32")
def floor_division_of_floats(p):
    x = tl.load(p) // 2  # error[float-floordiv]: // of f32


@bad("*f32")
def and_of_floats(p):
    x = tl.load(p) & 3  # error[bitwise-float]: & of f32


@bad("*f32")
def complement_of_float(p):
    x = ~tl.load(p)  # error[bitwise-float]: ~ of f32


@bad("*f32")
def xor_sum_of_floats(p):
    x = tl.xor_sum(tl.zeros((8,), tl.float32), 0)  # error[bitwise-float]: xor_sum of tile<8xf32>


@bad("*i32 u32")
def mixed_sign_division(p, n):
    x = tl.load(p) // n  # error[mixed-sign-division]: division of i32 by u32


@bad("*u8")
def literal_out_of_range(p):
    x = tl.load(p) + 300  # error[int-range]: 300 does not fit into u8


@bad("*u32")
def negative_literal_beside_unsigned(p):
    x = tl.load(p) + -1  # error[int-range]: -1 does not fit into u32


@bad("*i64")
def huge_literal(p):
    x = 2**70  # error[int-range]: 1180591620717411303424 fits no integer type


@bad("*f32 *f8e4m3")
def fp8_and_integer(p, q):
    x = tl.load(q) + tl.load(p).to(tl.int32)  # error[dtype-mismatch]: f8e4m3 and i32 have no common type


@bad("*f32 i1")
def negated_bool(p, flag):
    x = -flag  # error[negate-bool]: - of a bool


@bad("*f16 *f16")
def sum_of_pointers(p, q):
    x = p + q  # error[pointer-arithmetic]: ptr<f16> + ptr<f16>


@bad("*f16")
def product_of_pointer(p):
    x = p * 2  # error[pointer-arithmetic]: expected a number, found ptr<f16>


@bad("*f16 f32")
def float_offset(p, x):
    q = p + x  # error[pointer-offset]: a pointer offset is an integer, found f32


@bad("*f16")
def cast_of_pointer(p):
    q = p.to(tl.float32)  # error[pointer-cast]: ptr<f16> as f32


@bad("*f16 i32")
def pointer_of_32_bits(p, n):
    q = n.to(tl.pointer_type(tl.float16))  # error[pointer-cast]: i32 as a pointer



@bad("*f16")
def rounding_mode(p):
    q = tl.load(p).to(tl.float8e5, fp_downcast_rounding="up")  # error[cast-rounding]: fp_downcast_rounding='up'


@bad("*f16")
def bitcast_of_another_size(p):
    q = tl.load(p).to(tl.int32, bitcast=True)  # error[type]: bitcast from f16 to i32 changes the size


@bad("*f16")
def unknown_attribute(p):
    x = tl.arange(0, 8).shpae  # error[attribute]: tile<8xi32> has no attribute shpae


@bad("*f16")
def attribute_of_string(p):
    x = "text".upper()  # error[attribute]: 'text' has no attribute upper


@bad("*f16")
def string_operand(p):
    x = tl.load(p) + "1"  # error[operand-type]: expected a number or a tile, found '1'


@bad("*f16")
def none_operand(p):
    x = None + 1  # error[operand-type]: None + 1


@bad("*f16")
def index_by_number(p):
    x = tl.arange(0, 8)[3]  # error[subscript]: a tile is indexed by : and None only, not by 3


@bad("*f16")
def index_of_rank(p):
    x = tl.arange(0, 8)[:, :]  # error[subscript]: 2 axes indexed of tile<8xi32>


@bad("*f16")
def index_of_function(p):
    x = tl.load[0]  # error[subscript]: a function can't be indexed


@wl.jit
def helper(p):
    tl.store(p, 0.0)


@bad("*f16")
def grid_inside_of_a_kernel(p):
    helper[(1,)](p)  # error[subscript]: a JITFunction can't be indexed


@bad("*f16")
def item_of_many(p):
    x = tl.arange(0, 8).item()  # error[item]: item of tile<8xi32>, which has more than one element


@bad("*f16")
def tuple_index(p):
    x = (1, 2)[2]  # error[tuple-index]: index 2 of a tuple of 2


@bad("*f16 i32")
def run_time_value_in_string(p, n):
    tl.static_assert(False, f"n is {n}")  # error[string-value]: a run-time value (i32) in a string


@bad("*f16", BLOCK=48)
def static_assertion(p, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK % 32 == 0, f"BLOCK is {BLOCK}")  # error[static-assert]: static assertion failed: BLOCK is 48


@bad("*f16 i32")
def static_assertion_at_run_time(p, n):
    tl.static_assert(n > 0)  # error[constexpr-required]: the condition of static_assert must be a constexpr


@bad("*f16")
def max_with_indices_of_all(p):
    x = tl.max(tl.zeros((8, 8), tl.float32), return_indices=True)  # error[axis]: max with indices over all axes


@bad("*f16")
def length_of_scalar(p):
    x = len(tl.load(p))  # error[operand-type]: len of f16


@bad("*f16")
def int_of_run_time_value(p):
    x = int(tl.load(p))  # error[constexpr-required]: int() of f16


@bad("*f16")
def int_of_text(p):
    x = int("many")  # error[constant]: int('many')


@bad("*f32")
def numpy_in_a_kernel(p):
    tl.store(p, np.exp(tl.load(p)))  # error[call-target]: np.exp is not a kernel function


@bad("*f32")
def pythons_sum(p):
    tl.store(p, sum((2, 3)))  # error[unsupported]: kernels can't use Python's sum


@bad("*f32")
def zip_of_two_lengths(p):
    for i, x in zip((0, 1), (2,), strict=True):  # error[iterate]: zip(strict=True) of different lengths
        tl.store(p + i, x)


@bad("*f32")
def attribute_that_is_missing(p):
    tl.store(p, getattr(tl, "dott"))  # error[attribute]: warploom.language has no dott


@bad("*f32")
def pythons_open(p):
    x = open("x")  # error[unsupported]: kernels can't use Python's open


@bad("*f32")
def dtype_that_is_none(p):
    x = tl.load(p).to("float99")  # error[not-a-dtype]: found 'float99'


@bad("*f32")
def numpy_dtype(p):
    x = tl.zeros((64,), np.float32)  # error[not-a-dtype]: found the type numpy.float32


@bad("*f32", BLOCK=64.0)
def size_of_a_float(p, BLOCK: tl.constexpr):
    x = tl.arange(0, BLOCK)  # error[constexpr-required]: found 64.0


@bad("*f32 i32")
def arange_of_run_time_size(p, n):
    x = tl.arange(0, n)  # error[constexpr-required]: found i32


@bad("*f32 i32")
def list_that_grows(p, n):
    xs = []
    xs.append(n)  # error[attribute]: a list can't change in a kernel


@bad("*f16 i32")
def print_without_prefix(p, n):
    tl.device_print(n)  # error[print-prefix]: device_print starts with i32


@bad("*f32")
def split_of_a_wide_axis(p):
    x, y = tl.split(tl.load(p + tl.arange(0, 64)).reshape(4, 16))  # error[split]: split of a tile of shape 4x16


@bad("*f16")
def rounds_to_the_same(p):
    q = tl.load(p).to(tl.float32, fp_downcast_rounding="rtz")  # error[cast-rounding]: a cast of f16 to f32 that rounds towards zero


@bad("*f32")
def effect_by_element(p):
    def stores(x, p):
        if x > 0:  # error[map-effect]: store under an if on single elements
            tl.store(p, 1.0)
        return x

    q = tl.map_elementwise(stores, tl.arange(0, 8), p)


@bad("*f32")
def pack_that_does_not_divide(p):
    q = tl.map_elementwise(min, tl.arange(0, 8), p, pack=3)  # error[map-pack]: pack=3


@triton.aggregate
class Pair:
    x: ttl.tensor
    y: tl.constexpr


@bad("*f32")
def field_of_run_time(p):
    q = Pair(1, tl.load(p))  # error[constexpr-required]: y of Pair is a tl.constexpr, found f32


@bad("*f32")
def field_that_is_missing(p):
    q = Pair(1, 2).z  # error[attribute]: Pair has no attribute z


SIZES = {"rows": 4}


@triton.aggregate
class Sized:
    rows: tl.constexpr

    def __init__(self):
        self.rows = tl.constexpr(SIZES["rows"])


@bad("*f32")
def init_that_reads_a_dict(p):
    q = Sized()  # error[aggregate]: the __init__ of Sized reads SIZES


@triton.aggregate
class Wrong:
    rows: tl.constexpr

    def __init__(self, n):
        self.rows = tl.constexpr(len(n))


@bad("*f32")
def init_that_raises(p):
    q = Wrong(1)  # error[aggregate]: the __init__ of Wrong raised TypeError


@bad("*f32")
def replaces_nothing(p):
    q = ttl.aggregate_replace(p, x=1)  # error[aggregate]: aggregate_replace of ptr<f32>


@bad("*f32")
def adds_aggregates(p):
    q = Pair(1, 2) + 1  # error[operand-type]: + 1


@bad("*f32")
def asm_without_an_operand(p):
    q = tl.inline_asm_elementwise("mov.u32 $0, 1;", "=r", [], tl.int32, True, 1)  # error[inline-asm]: assembly without an operand


@bad("*i32")
def nan_in_integers(p):
    i = tl.arange(0, 8)
    tl.store(p + i, tl.load(p + i, mask=i < 4, other=float("nan")))  # error[int-range]: nan does not fit into i32


@bad("*i32")
def infinity_in_integers(p):
    tl.store(p, -float("inf"))  # error[int-range]: -inf does not fit into i32


@bad("*i32")
def float_beyond_integers(p):
    tl.store(p, 1e30)  # error[int-range]: 1e+30 does not fit into i32


@bad("*i32")
def infinity_as_python_integer(p):
    tl.store(p, int(float("inf")))  # error[constant]: int(inf): cannot convert float infinity to integer


@bad("*f32 *i32")
def pointer_beside_a_number(p, n):
    tl.store(p + tl.arange(0, 8), 1.0, mask=tl.arange(0, 8) < n)  # error[pointer-compare]: ptr<i32> beside tile<8xi32>


@bad("*f32 *i32")
def pointer_beside_a_literal(p, n):
    if n > 3:  # error[pointer-compare]: ptr<i32> beside 3
        tl.store(p, 1.0)


@bad("*f16")
def sum_of_bytes(p):
    x = tl.load(p).to(tl.float8e4b15)
    tl.store(p, x + x)  # error[storage-dtype]: add of float8e4b15


@bad("*bf16")
def bytes_of_bf16(p):
    x = tl.load(p + tl.arange(0, 8))
    y = x.to(tl.float8e4b15)  # error[storage-dtype]: a conversion of tile<8xbf16> to float8e4b15


@bad("*f16")
def format_of_other_chips(p):
    tl.static_assert(p.dtype.element_ty != tl.float8e4b8)
    x = tl.load(p).to(tl.float8e4b8)  # error[other-chips]: the target of a cast is f8e4b8, a format of other chips
