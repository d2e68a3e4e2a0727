"""Loops, branches, calls, assignments."""
# ruff: noqa
# The marks stay on the lines they mark:
# fmt: off

import warploom as wl
import warploom.language as tl
from tests.errors.bad import bad


@bad("*f32 i32")
def type_change_in_loop(p, n):
    acc = 0
    for i in range(n):
        acc = acc + 0.5  # error[loop-type]: acc is i32 before the loop and f32 after one iteration


@bad("*f32 i32")
def shape_change_in_loop(p, n):
    acc = tl.zeros((8,), tl.float32)
    for i in range(n):
        acc = acc[:, None] + acc[None, :]  # error[loop-type]: acc is tile<8xf32> before the loop and tile<8x8xf32>


@bad("*f32 i32")
def type_change_in_while(p, n):
    x = 1
    while n > 0:
        n -= 1
        x = x * 1.5  # error[loop-type]: x is i32 before the loop and f32


@bad("*f32 i32")
def none_in_loop(p, n):
    x = None
    for i in range(n):
        x = tl.load(p + i)  # error[loop-type]: x is None before the loop and f32


@bad("*f32 i32")
def index_hides_variable(p, n):
    i = 0
    for k in range(n):  # error[loop-type]: i has no value at the end of the loop's body
        i += 1
        for i in range(n):
            tl.store(p, 1.0)


@bad("*f32 i32")
def types_in_arms(p, n):
    if n > 0:
        x = 1
    else:
        x = 1.0  # error[if-type]: x is i32 in one arm and f32 in the other


@bad("*f32 i32")
def kinds_in_arms(p, n):
    if n > 0:
        x = (1, 2)
    else:
        x = 1  # error[if-type]: x is a tuple of 2 (i32, i32) in one arm and i32 in the other


@bad("*f32 i32")
def types_in_ternary(p, n):
    x = tl.arange(0, 8) if n > 0 else tl.arange(0, 4)  # error[if-type]: the arms give tile<8xi32> and tile<4xi32>


@bad("*f32 i32")
def kinds_in_ternary(p, n):
    x = p if n > 0 else None  # error[if-type]: the arms give ptr<f32> and None


@bad("*f32 i32")
def if_of_tile(p, n):
    if tl.arange(0, 8) < n:  # error[tile-condition]: the truth of a whole tile, tile<8xi1>
        tl.store(p, 1.0)


@bad("*f32 i32")
def while_of_tile(p, n):
    x = tl.arange(0, 8)
    while x < n:  # error[tile-condition]: the truth of a whole tile
        x += 1


@bad("*f32 i32")
def and_of_a_pointer_tile(p, n):
    offs = tl.arange(0, 8)
    mask = offs < n and p + offs  # error[pointer-arithmetic]: expected a number, found tile<8xptr<f32>>


@bad("*f32 i32")
def membership(p, n):
    x = n in (1, 2)  # error[operand-type]: i32 in a tuple of 2


@bad("*f32 f32")
def float_bound(p, n):
    for i in range(n):  # error[range-bound]: a loop bound is an integer, found f32
        tl.store(p, 1.0)


@bad("*f32 i32")
def zero_step(p, n):
    for i in range(0, n, 0):  # error[range-step]: a range with step 0
        tl.store(p, 1.0)


@bad("*f32 i32")
def zero_static_step(p, n):
    for i in tl.static_range(0, 4, 0):  # error[range-step]: a range with step 0
        tl.store(p, 1.0)


@bad("*f32 i32")
def too_many_copies(p, n):
    for i in tl.static_range(10**9):  # error[unrolled]: tl.static_range of 1,000,000,000 iterations
        tl.store(p, 1.0)


@bad("*f32 i32")
def too_many_elements(p, n):
    ones = [1 for i in range(10**9)]  # error[unrolled]: a range unrolled of 1,000,000,000 iterations


@bad("*f32 i32")
def assigned_in_one_arm(p, n):
    x = (y := 1) if n > 3 else 0  # error[conditional-assignment]: y is assigned (:=) in what may not be evaluated


@bad("*f32 i32")
def assigned_after_and(p, n):
    if n > 3 and (y := n) > 0:  # error[conditional-assignment]: y is assigned (:=) in what may not be evaluated
        tl.store(p, 1.0)


@bad("*f32 i32")
def assigned_after_comparison(p, n):
    if 3 < n < (y := 10):  # error[conditional-assignment]: y is assigned (:=) in what may not be evaluated
        tl.store(p, 1.0)


@bad("*f32 i32")
def static_range_at_run_time(p, n):
    for i in tl.static_range(n):  # error[constexpr-required]: a bound of tl.static_range must be a constexpr integer
        tl.store(p, 1.0)


@bad("*f32 i32")
def stages_at_run_time(p, n):
    for i in tl.range(0, 8, num_stages=n):  # error[constexpr-required]: num_stages must be a constexpr integer
        tl.store(p, 1.0)


@bad("*f32 i32")
def iterates_over_tile(p, n):
    for i in tl.arange(0, 8):  # error[iterate]: can't iterate over tile<8xi32>
        tl.store(p, 1.0)


@bad("*f32 i32")
def two_loop_indices(p, n):
    for i, j in range(n):  # error[unpack]: a loop's index is one name
        tl.store(p, 1.0)


@bad("*f32 i32")
def return_in_loop(p, n):
    for i in range(n):
        if i == 3:
            return  # error[return-nested]: a return inside a loop


@wl.jit
def sometimes(n):
    if n > 0:  # error[if-type]: the arms give i32 and None
        if n > 5:
            return n
        n += 1


@bad("*f32 i32", of=sometimes)
def value_returned_on_some_paths(p, n):
    tl.store(p, sometimes(n))


@bad("*f32 i32")
def assigned_on_some_of_the_paths_that_go_on(p, n):
    if n > 0:
        if n > 5:
            return
        x = 1.0
    tl.store(p, x)  # error[undefined-name]: x has no value here: only one arm of an if assigns it


@bad("*f32 i32")
def return_in_with(p, n):
    with tl.async_task([0]):
        return  # error[return-nested]: a return inside a with block


@bad("*f32 i32")
def returns_value(p, n):
    tl.store(p, 1.0)
    return n  # error[return-value]: a kernel returns nothing, found i32


@bad("*f32 i32")
def unpack_count(p, n):
    a, b, c = n, n + 1  # error[unpack]: 2 values for 3 names


@bad("*f32 i32")
def unpack_number(p, n):
    a, b = n  # error[unpack]: i32 can't be unpacked


@bad("*f32 i32")
def assigns_element(p, n):
    x = tl.arange(0, 8)
    x[0] = n  # error[assign-target]: can't assign to x[0]


@bad("*f32 i32")
def augments_attribute(p, n):
    n.value += 1  # error[assign-target]: can't assign to n.value


@bad("*f32 i32")
def constexpr_local(p, n):
    BLOCK: tl.constexpr = n * 2
    x = tl.arange(0, BLOCK)  # error[constexpr-required]: arange's end must be a constexpr integer, found i32


@bad("*f32")
def unknown_keyword(p):
    x = tl.load(p, maks=True)  # error[call-arguments]: tl.load: got an unexpected keyword argument 'maks'


@bad("*f32")
def missing_argument(p):
    tl.store(p)  # error[call-arguments]: tl.store: missing a required argument: 'value'


@bad("*f32")
def one_argument_to_max(p):
    x = max(tl.arange(0, 8))  # error[call-arguments]: min and max take two or more values


@wl.jit
def block_of(x, BLOCK: tl.constexpr):
    return x + tl.arange(0, BLOCK)


@wl.jit
def numbers(N: tl.constexpr):
    return tl.arange(0, N)  # error[constexpr-required]: arange's end must be a constexpr integer, found i32


@bad("*f32 i32", of=numbers)
def helper_needs_constexpr(p, n):
    x = numbers(n)


@bad("*f32 i32")
def helper_misses_argument(p, n):
    x = block_of(p)  # error[call-arguments]: block_of: missing a required argument: 'BLOCK'


@wl.jit
def loads_number(x):
    return tl.load(x)  # error[not-a-pointer]: load needs a pointer, found i32


@bad("*f32 i32", of=loads_number)
def mistake_in_helper(p, n):
    tl.store(p, loads_number(n))


@wl.jit
def factorial(n):
    return n * factorial(n - 1)  # error[recursion]: factorial calls itself


@bad("*f32 i32", of=factorial)
def recursive(p, n):
    tl.store(p, factorial(n))


@tl.constexpr_function
def half(n):
    if n % 2:
        raise ValueError(f"{n} is odd")
    return n // 2


@bad("*f32", BLOCK=3)
def constexpr_function_raises(p, BLOCK: tl.constexpr):
    x = tl.arange(0, half(BLOCK))  # error[constexpr-function]: half raised ValueError: 3 is odd


@bad("*f32 i32")
def constexpr_function_at_run_time(p, n):
    x = half(n)  # error[constexpr-required]: half runs while compiling, but got i32


@bad("*f32")
def parameter_without_value(p, BLOCK: tl.constexpr):  # error[missing-argument]: no value for BLOCK
    tl.store(p, 1.0)


@bad("*f32", BLOCKS=64)
def parameter_unknown(p, BLOCK: tl.constexpr = 64):  # error[unknown-parameter]: parameter_unknown has no parameter BLOCKS
    tl.store(p, 1.0)


@bad("*f32")
def any_names(**pointers):  # error[parameter-kind]: any_names takes any names (**pointers)
    tl.store(pointers["x"], 1.0)
