"""Python that kernels can't use, and names that mean nothing in them."""
# ruff: noqa
# The marks stay on the lines they mark:
# fmt: off

import numpy as np

import warploom as wl
import warploom.language as tl
from tests.errors.bad import bad

TABLE = {"a": 1}
SET = {1}
SIZES = [4, 8]


@bad("*f32")
def uses_set_comprehension(p):
    x = {i for i in range(4)}  # error[unsupported]: kernels can't use a set comprehension


@bad("*f32")
def uses_dict_comprehension(p):
    x = {i: i for i in range(4)}  # error[unsupported]: kernels can't use a dict comprehension


@bad("*f32")
def uses_generator(p):
    x = sum(i for i in range(4))  # error[unsupported]: kernels can't use Python's sum


@bad("*f32")
def uses_set(p):
    x = {1, 2}  # error[unsupported]: kernels can't use a set


@bad("*f32")
def uses_yield(p):
    yield p  # error[unsupported]: kernels can't use yield


@bad("*f32")
def uses_yield_from(p):
    yield from p  # error[unsupported]: kernels can't use yield from


@bad("*f32")
def uses_try(p):
    try:  # error[unsupported]: kernels can't use try
        tl.store(p, 1.0)
    finally:
        pass


@bad("*f32")
def uses_except_star(p):
    try:  # error[unsupported]: kernels can't use try
        tl.store(p, 1.0)
    except* ValueError:
        pass


@bad("*f32")
def uses_raise(p):
    raise ValueError("no")  # error[unsupported]: kernels can't use raise


@bad("*f32")
def uses_global(p):
    global TABLE  # error[unsupported]: kernels can't use global


def _enclosing():
    total = 0

    @bad("*f32")
    def uses_nonlocal(p):
        nonlocal total  # error[unsupported]: kernels can't use nonlocal

    return uses_nonlocal, total


_enclosing()


@bad("*f32")
def uses_del(p):
    x = tl.load(p)
    del x  # error[unsupported]: kernels can't use del


@bad("*f32")
def uses_import(p):
    import math  # error[unsupported]: kernels can't use import


@bad("*f32")
def uses_from_import(p):
    from math import pi  # error[unsupported]: kernels can't use import


@bad("*f32")
def uses_class(p):
    class Inner:  # error[unsupported]: kernels can't use a class
        pass


@bad("*f32")
def nested_function_of_names(p):
    def inner(**x):  # error[parameter-kind]: inner takes any names (**x)
        return x


@bad("*f32")
def nested_function_calls_itself(p):
    def inner(x):
        return inner(x)  # error[recursion]: inner calls itself

    inner(1)


@bad("*f32 i32")
def uses_match(p, n):
    match n:  # error[unsupported]: kernels can't use match
        case 1:
            pass


@bad("*f32 i32")
def uses_break(p, n):
    for i in range(n):
        break  # error[unsupported]: kernels can't use break


@bad("*f32 i32")
def uses_continue(p, n):
    while n > 0:
        continue  # error[unsupported]: kernels can't use continue


@bad("*f32 i32")
def uses_starred_target(p, n):
    a, *b = (n, n, n)  # error[unsupported]: kernels can't use a starred target


@bad("*f32 i32")
def stars_a_number(p, n):
    tl.store(*n)  # error[unpack]: * of i32


@bad("*f32 i32")
def uses_keyword_splat(p, n):
    tl.store(p, **n)  # error[unsupported]: kernels can't use ** of i32


@bad("*f32")
def dict_without_the_entry(p):
    tl.store(p, {"a": 1}["b"])  # error[dict-key]: no entry 'b'


@bad("*f32 i32")
def dict_with_a_key_of_run_time(p, n):
    x = {n: 1}  # error[constexpr-required]: the key i32


@bad("*f32")
def dict_of_a_dict(p):
    x = {**TABLE}  # error[unsupported]: kernels can't use ** in a dict


@bad("*f32 i32")
def uses_for_else(p, n):
    for i in range(n):
        tl.store(p, 1.0)
    else:
        tl.store(p, 2.0)  # error[unsupported]: kernels can't use for … else


@bad("*f32 i32")
def uses_while_else(p, n):
    while n > 0:
        n -= 1
    else:
        tl.store(p, 2.0)  # error[unsupported]: kernels can't use while … else


@bad("*f32")
def uses_with(p):
    with open("file"):  # error[unsupported]: kernels can't use Python's open
        pass


@bad("*f32")
def uses_with_value(p):
    with tl.load(p):  # error[with]: kernels know no context manager but tl.async_task
        pass


@bad("*f32")
def uses_with_as(p):
    with tl.async_task([0]) as task:  # error[with]: kernels know no context manager but tl.async_task
        pass


@bad("*f32")
def uses_matmul_operator(p):
    x = tl.zeros((16, 16), tl.float32)
    y = x @ x  # error[unsupported]: kernels can't use @


@bad("*f32")
def uses_power(p):
    y = tl.load(p) ** 2  # error[unsupported]: kernels can't use **


@bad("*f32")
def undefined_name(p):
    tl.store(p, valeu)  # error[undefined-name]: valeu is not defined


@bad("*f32 i32")
def undefined_after_loop(p, n):
    for i in range(n):
        x = i
    tl.store(p, x)  # error[undefined-name]: x has no value here: only a loop's body assigns it


@bad("*f32 i32")
def loop_index_after_loop(p, n):
    for i in range(n):
        tl.store(p, 1.0)
    tl.store(p, i)  # error[undefined-name]: i has no value here: a loop's index is known inside


@bad("*f32 i32")
def undefined_after_if(p, n):
    if n > 3:
        x = 1.0
    tl.store(p, x)  # error[undefined-name]: only one arm of an if assigns it


@bad("*f32 i32")
def undefined_after_an_index_in_one_arm(p, n):
    i = 1
    if n > 3:
        for i in range(n):
            tl.store(p, 1.0)
    tl.store(p, i)  # error[undefined-name]: only one arm of an if assigns it


@bad("*f32")
def global_set(p):
    tl.store(p, SET)  # error[global-value]: SET is a set


@bad("*f32")
def numpy_function(p):
    tl.store(p, np.sin(1.0))  # error[call-target]: np.sin is not a kernel function


def plain_helper(x):
    return x + 1


@bad("*f32")
def plain_python_helper(p):
    tl.store(p, plain_helper(tl.load(p)))  # error[call-target]: plain_helper is not a kernel function


@bad("*f32")
def unknown_function(p):
    tl.stroe(p, 1.0)  # error[unknown-function]: warploom.language has no stroe


@bad("*f32")
def function_of_triton_only(p):
    tl.constexpr_type(p)  # error[not-yet]: tl.constexpr_type is Triton's, but not supported here


@wl.jit
def twice(a, b):
    return a, b


@bad("*f32")
def combination_of_too_many(p):
    tl.reduce(tl.arange(0, 8), 0, twice)  # error[combine]: gives 2 values of 1 and 1


@bad("*f32")
def largest_of_too_few(p):
    tl.topk(tl.arange(0, 8), 9)  # error[topk]: the largest 9 of 8


@bad("*f32")
def merge_of_an_odd_number(p):
    tl.bitonic_merge(tl.arange(0, 6))  # error[sort]: bitonic_merge of 6 elements


@bad("*f32")
def histogram_of_floats(p):
    tl.histogram(tl.zeros((8,), tl.float32), 4)  # error[histogram]: histogram of tile<8xf32> in 4 bins


@bad("*f32")
def random_numbers_for_floats(p):
    tl.rand(0, tl.zeros((8,), tl.float32))  # error[random]: random numbers for tile<8xf32>


@bad("*f32")
def bytes_literal(p):
    x = b"abc"  # error[constant]: b'abc' has no meaning in a kernel


@bad("*f32")
def division_of_constants(p):
    x = 1 // 0  # error[constant]: 1 // 0
