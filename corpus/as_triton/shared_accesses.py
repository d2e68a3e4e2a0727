"""In the idioms of triton-shared's examples: how pointers, masks and indices are made and carried by loops."""

import torch
import triton
import triton.language as tl


@triton.jit
def returning_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Programs past the end leave at once."""
    pid = tl.program_id(0)
    if pid * BLOCK >= n:
        return
    at = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


@triton.jit
def nested_kernel(x_ptr, out_ptr, stride_m, stride_n, BLOCK: tl.constexpr):
    """Pointers that both of two nested loops move on."""
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    x_ptrs = x_ptr + rows[:, None] * stride_m + columns[None, :] * stride_n
    out_ptrs = out_ptr + rows[:, None] * stride_m + columns[None, :] * stride_n
    for _ in range(0, 2):
        first = tl.load(x_ptrs)
        x_ptrs += BLOCK * stride_n
        for _ in range(0, 2):
            second = tl.load(x_ptrs)
            x_ptrs += BLOCK * stride_n
            tl.store(out_ptrs, first + second)
            out_ptrs += BLOCK * stride_n


@triton.jit
def wrapped_kernel(x_ptr, out_ptr, M, N, first, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rows and columns that begin again at the end."""
    rows = (first + tl.arange(0, BLOCK_M)) % M
    columns = (first + tl.arange(0, BLOCK_N)) % N
    x_ptrs = x_ptr + rows[:, None] * N + columns[None, :]
    out_ptrs = out_ptr + tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    for i in range(0, 3):
        x = tl.load(x_ptrs)
        tl.store(out_ptrs + i * BLOCK_M * BLOCK_N, x)
        columns = (columns + BLOCK_N) % N
        x_ptrs = x_ptr + rows[:, None] * N + columns[None, :]


@triton.jit
def carried_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Indices and a mask of them that a loop carries; two tiles that change places."""
    at = tl.arange(0, BLOCK)
    mask = at < n
    a, b = tl.zeros((BLOCK,), tl.float32), tl.full((BLOCK,), 1.0, tl.float32)
    for i in range(0, 5):
        x = tl.load(x_ptr + at, mask=mask, other=-1.0)
        a, b = b, a + x
        tl.store(out_ptr + i, tl.sum(a, axis=0))
        at += BLOCK
        mask = at < n
    tl.store(out_ptr + 5 + tl.arange(0, BLOCK), b)


@triton.jit
def selected_kernel(x_ptr, index_ptr, out_ptr, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows that an array names, which may count from the end; written where another row of it says."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    index = tl.load(index_ptr + rows)
    index = tl.where(index < 0, index + 16, index)
    columns = tl.arange(0, BLOCK)
    mask = columns[None, :] < N
    x = tl.load(x_ptr + index[:, None] * N + columns[None, :], mask=mask)
    tl.store(out_ptr + (15 - index)[:, None] * N + columns[None, :], x, mask=mask)


@triton.jit
def masked_kernel(x_ptr, keep_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    """A mask of ranges, of a condition on indices, and of what memory holds."""
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    at = rows[:, None] * N + columns[None, :]
    keep = tl.load(keep_ptr + columns, mask=columns < N, other=0)
    mask = (
        (rows[:, None] < M) & (columns[None, :] < N) & ((rows[:, None] + columns[None, :]) % 3 != 0)
    )
    x = tl.load(x_ptr + at, mask=mask & (keep[None, :] > 0), other=-1.0)
    tl.store(out_ptr + at, x, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def based_kernel(a_ptr, b_ptr, out_ptr, offset, BLOCK: tl.constexpr):
    """One of two arrays by the program; hints; products of 64 bits and their upper halves; negative offsets."""
    pid = tl.program_id(0)
    base = a_ptr
    if pid % 2 == 1:
        base = b_ptr
    at = tl.max_contiguous(tl.multiple_of(pid // 2 * BLOCK, BLOCK) + tl.arange(0, BLOCK), BLOCK)
    back = (offset - 1 - at).to(tl.int64)
    x = tl.load(base + offset + (back - offset)).to(tl.uint32)
    high = tl.umulhi(x, tl.full((BLOCK,), 0x9E3779B9, tl.uint32))
    tl.store(out_ptr + pid * BLOCK + tl.arange(0, BLOCK), high.to(tl.int32))


@triton.jit
def block_pointer_kernel(x_ptr, out_ptr, M, N, stride, BLOCK: tl.constexpr):
    """A block pointer whose base, shape and offsets are computed, of a transposed matrix."""
    row = tl.program_id(0) * BLOCK
    source = tl.make_block_ptr(
        base=x_ptr + row * stride, shape=(N, M - row), strides=(1, stride), offsets=(BLOCK - BLOCK // 2, 0),
        block_shape=(BLOCK, BLOCK), order=(0, 1),
    )  # fmt: skip
    x = tl.load(source, boundary_check=(0, 1), padding_option="zero")
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(out_ptr + tl.program_id(0) * BLOCK * BLOCK + at, x)


def check(device="cuda", n=100):
    torch.manual_seed(0)
    x = torch.randn(n, device=device)
    out = torch.zeros(n, device=device)
    returning_kernel[(8,)](x, out, n, BLOCK=64)
    torch.testing.assert_close(out, torch.where(torch.arange(n, device=device) < 512, 2 * x, 0))
    x, out = torch.randn(4, 24, device=device), torch.zeros(4, 24, device=device)
    nested_kernel[(1,)](x, out, 24, 1, BLOCK=4)
    parts, want = x.reshape(4, 6, 4), torch.zeros(4, 6, 4, device=device)
    for i, (a, b) in enumerate(((0, 1), (0, 2), (3, 4), (3, 5))):
        want[:, i] = parts[:, a] + parts[:, b]
    torch.testing.assert_close(out, want.reshape(4, 24))
    x, out = torch.randn(10, 21, device=device), torch.zeros(3, 8, 16, device=device)
    wrapped_kernel[(1,)](x, out, 10, 21, 7, BLOCK_M=8, BLOCK_N=16)
    rows = (7 + torch.arange(8, device=device)) % 10
    columns = ((7 + torch.arange(48, device=device)) % 21).reshape(3, 16)
    want = torch.stack([x[rows][:, c] for c in columns])
    torch.testing.assert_close(out, want)
    x, out = torch.randn(70, device=device), torch.zeros(5 + 16, device=device)
    carried_kernel[(1,)](x, out, 70, BLOCK=16)
    padded = torch.nn.functional.pad(x, (0, 10), value=-1.0).reshape(5, 16)
    a, b = torch.zeros(16, device=device), torch.ones(16, device=device)
    for i, row in enumerate(padded):
        a, b = b, a + row
        torch.testing.assert_close(out[i], a.sum(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(out[5:], b)
    x, out = torch.randn(16, 30, device=device), torch.zeros(16, 30, device=device)
    index = torch.randperm(16, device=device).to(torch.int32)
    selected_kernel[(2,)](
        x, torch.where(index > 9, index - 16, index).int(), out, 30, ROWS=8, BLOCK=32
    )
    torch.testing.assert_close(out, x.flip(0))
    x, out = torch.randn(13, 9, device=device), torch.zeros(13, 9, device=device)
    keep = (torch.rand(9, device=device) > 0.4).to(torch.int32)
    masked_kernel[(1,)](x, keep, out, 13, 9, BLOCK=16)
    diagonal = torch.arange(13, device=device)[:, None] + torch.arange(9, device=device)[None, :]
    torch.testing.assert_close(out, torch.where((diagonal % 3 != 0) & (keep[None, :] > 0), x, -1.0))
    a, b = (torch.randint(0, 1 << 31, (256,), device=device).to(torch.int32) for _ in range(2))
    out = torch.zeros(4, 128, device=device, dtype=torch.int32)
    based_kernel[(4,)](a, b, out, 256, BLOCK=128)
    flipped = torch.stack([t.flip(0)[i : i + 128] for i in (0, 128) for t in (a, b)]).long()
    want = (flipped * 0x9E3779B9) >> 32
    assert torch.equal(out.long() & 0xFFFFFFFF, want & 0xFFFFFFFF)
    x, out = torch.randn(40, 50, device=device), torch.zeros(3, 16, 16, device=device)
    block_pointer_kernel[(3,)](x, out, 40, 50, 50, BLOCK=16)
    padded = torch.nn.functional.pad(x, (0, 0, 0, 8))[:, 8:24]
    torch.testing.assert_close(out, padded.reshape(3, 16, 16).transpose(1, 2))
