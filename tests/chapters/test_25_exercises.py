"""What the checks of chapter 25's exercises say of right and of wrong answers."""

from __future__ import annotations

from typing import Any

import pytest

from cutetut.course import notebooks
from tests.chapters import exercises

CHAPTER = "25_ship_it"
ANSWERS = """
def same(z):
    return z


def only_positive(z):
    return cutlass.max(z, cutlass.Float32(0.0))


def squared(z):
    return z * z


def by_torch(z):
    return torch.relu(z) ** 2


def chosen(z):
    return cutlass.max(z, cutlass.Float32(0.0)) * z


def read_at(plan, thr_mma, t, shape, place, strides=None):
    whole = t if strides is None else cute.make_tensor(t.iterator, cute.make_layout(shape, stride=strides))
    return thr_mma.partition_C(cute.local_tile(whole, plan.tile[:2], place))


def scaled(strides, order="scale", count=None):
    @cute.jit
    def finish_it(tCrC, thr_mma, mScales, mResidual, shape, place, plan: cutlass.Constexpr):
        where = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(shape), plan.tile[:2], place))
        scales = read_at(plan, thr_mma, mScales, shape, place, strides)
        given = read_at(plan, thr_mma, mResidual, shape, place)
        for v in cutlass.range_constexpr(cute.size(tCrC) if count is None else count):
            if cute.elem_less(where[v], shape):
                if cutlass.const_expr(order == "scale"):
                    tCrC[v] = tCrC[v] * scales[v].to(cutlass.Float32) + given[v].to(cutlass.Float32)
                else:
                    tCrC[v] = (tCrC[v] + given[v].to(cutlass.Float32)) * scales[v].to(cutlass.Float32)

    return finish_it


@cute.jit
def unguarded(tCrC, thr_mma, mScales, mResidual, shape, place, plan: cutlass.Constexpr):
    scales = read_at(plan, thr_mma, mScales, shape, place, (1, 0))
    for v in cutlass.range_constexpr(cute.size(tCrC)):
        tCrC[v] = tCrC[v] * scales[v].to(cutlass.Float32)


def by_coordinates(tile_of=lambda plan: plan.tile[:2]):
    @cute.jit
    def finish_it(tCrC, thr_mma, mScales, mResidual, shape, place, plan: cutlass.Constexpr):
        where = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(shape), tile_of(plan), place))
        for v in cutlass.range_constexpr(cute.size(tCrC)):
            m, n = where[v]
            if m < shape[0] and n < shape[1]:
                tCrC[v] = tCrC[v] * mScales[m].to(cutlass.Float32) + mResidual[m, n].to(cutlass.Float32)

    return finish_it


def slopes(make, count=None):
    @cute.jit
    def finish_it(tCrC, thr_mma, mBias, mGrad, shape, place, plan: cutlass.Constexpr):
        finish(tCrC, thr_mma, mBias, None, shape, place, plan)
        where = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(shape), plan.tile[:2], place))
        dy = read_at(plan, thr_mma, mGrad, shape, place)
        for v in cutlass.range_constexpr(cute.size(tCrC) if count is None else count):
            if cute.elem_less(where[v], shape):
                tCrC[v] = make(tCrC[v]) * dy[v].to(cutlass.Float32)

    return finish_it


def by_exponentials(z):
    u = 1.5957691216057308 * (z + 0.044715 * z * z * z)
    s = 1.0 / (1.0 + cute.math.exp(-u))
    return s + z * s * (1.0 - s) * 1.5957691216057308 * (1.0 + 0.134145 * z * z)


def of_relu(z):
    return cutlass.max(z, cutlass.Float32(0.0)) / cutlass.max(z, cutlass.Float32(1e-30))


def half_of_it(z):
    return 0.5 * (1.0 + cute.math.tanh(0.7978845608 * (z + 0.044715 * z * z * z), fastmath=True))


def fake_by_views(x, heads):
    whole = x.view(*x.shape[:2], heads, -1).transpose(1, 2).contiguous()
    return [torch.empty_like(whole), torch.empty(whole.shape[:3], dtype=torch.float32, device=x.device)]


def fake_strided(x, heads):
    whole = x.view(*x.shape[:2], heads, -1).transpose(1, 2)
    return whole, x.new_empty(whole.shape[:3], dtype=torch.float32)


def fake_norms(x, heads):
    whole = x.view(*x.shape[:2], heads, -1).transpose(1, 2).contiguous()
    return whole, x.new_empty(whole.shape[:3])


def fake_on(device):
    def fake(x, heads):
        B, S, E = x.shape
        made = {} if device is None else {"device": device}
        return (
            torch.empty(B, heads, S, E // heads, dtype=x.dtype, **made),
            torch.empty(B, heads, S, dtype=torch.float32, **made),
        )

    return fake


def reads_a_number(x, heads):
    return x.flatten()[0].item(), x


def real_ones(x, heads):
    with unset_fake_temporarily():
        return split_heads(torch.zeros(tuple(x.shape), dtype=x.dtype), heads)


def without_products(dy, x, W, scales, product):
    dz = dy * scales
    return dz @ W, dz.T @ x, (dy * (x @ W.T)).sum(1, keepdim=True)


def in_another_order(dy, x, W, scales, product):
    ds = (product(x, W).float() * dy.float()).sum(1, keepdim=True)
    z, turned = (dy.float() * scales.float()).bfloat16(), W.mT.clone(memory_format=torch.contiguous_format)
    return [product(z, turned), product(z.mT.contiguous(), x.mT.contiguous()), ds]


def two_products(dy, x, W, scales, product):
    g = product(dy, W.T.contiguous())
    return g * scales, product((dy * scales).T.contiguous(), x.T.contiguous()), (g * x).sum(1, keepdim=True)


def in_one_product(dy, x, W, scales, product):
    dz = dy * scales
    a = torch.block_diag(dz, dz.T.contiguous())
    both = product(a, torch.cat([W.T, x.T], dim=1).contiguous())
    dx, dW = both[: len(x)], both[len(x) :]
    return dx, dW, torch.einsum("mk,mk->m", dx / scales, x)[:, None]


def one_by_torch(dy, x, W, scales, product):
    dz = dy * scales
    return product(dz, W.T.contiguous()), dz.T @ x, (dy * product(x, W)).sum(1, keepdim=True)


def row_by_row(dy, x, W, scales, product):
    dx = torch.stack([W.T @ row for row in dy * scales])
    return dx, product((dy * scales).T.contiguous(), x.T.contiguous()), (dx / scales * x).sum(1, True)


def by_broadcasting(dy, x, W, scales, product):
    dz = (dy * scales).float()
    dx, dW = (dz[:, :, None] * W).sum(1), (dz[:, :, None] * x[:, None]).sum(0)
    return dx, dW, (dx / scales * x).sum(1, True)


def half_by_broadcasting(dy, x, W, scales, product):
    dz = dy * scales
    dx, dW = product(dz, W.T.contiguous()), (dz.float()[:, :, None] * x[:, None]).sum(0)
    return dx, dW, (dx / scales * x).sum(1, True)


def without_numbers(dy, x, W, scales, product):
    product(x, W)
    return [torch.empty_like(t, device="meta") for t in (x, W, scales)]


def sparse(dy, x, W, scales, product):
    return [t.to_sparse() for t in (x, W, scales)]


def unscaled(dy, x, W, scales, product):
    dx, dW = product(dy, W.T.contiguous()), product(dy.T.contiguous(), x.T.contiguous())
    return dx, dW, (dy * product(x, W)).sum(1, True)


def not_transposed(dy, x, W, scales, product):
    return product(dy * scales, W.T), dy, dy
"""
SETUP = "import numpy as np\nfrom torch._subclasses.fake_tensor import unset_fake_temporarily\n"
OTHER = [*exercises.OTHER, "lambda A, B: A @ B.T", "torch.ones(3, 3)"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_saved": (
        ["128", "0", "64", "-256", "256 * 2**20", *exercises.NUMBERS],
        ["256", "256.0", "np.int64(256)", "torch.tensor(256)", "2**28 / 2**20"],
    ),
    "check_act": ([*OTHER, "same", "only_positive", "squared", "by_torch"], ["positive_squared", "chosen"]),
    "check_scaled": (
        [*OTHER, "finish", "scaled((0, 1))", "scaled((1, 0), 'sum first')", "unguarded",
         "scaled((1, 0), count=64)", "by_coordinates(lambda plan: (128, 128))"],
        ["finish_rows", "scaled((1, 0))", "by_coordinates()"],
    ),
    "check_slope": (
        [*OTHER, "finish", "slopes(of_relu)", "slopes(half_of_it)", "slopes(gelu_tanh)", "scaled((0, 1))",
         "slopes(slope_of_gelu, 64)"],
        ["finish_gradient", "slopes(slope_of_gelu)", "slopes(by_exponentials)"],
    ),
    "check_fake": (
        [*OTHER, "fake_strided", "fake_norms", "reads_a_number", "real_ones", "split_heads and (lambda x, h: x)",
         "fake_on(None)", "fake_on('cpu')", "fake_on('meta')"],
        ["fake_of_split", "fake_by_views", "split_heads"],
    ),
    "check_backward": (
        [*OTHER, "without_products", "unscaled", "not_transposed", "lambda *a: None", "one_by_torch", "row_by_row",
         "by_broadcasting", "half_by_broadcasting", "without_numbers", "sparse"],
        ["backward_of_scaled", "in_another_order", "two_products", "in_one_product"],
    ),
}  # fmt: skip
test_answers_are_judged = exercises.answers_are_judged(CHECKS)
HINTS = {  # what a wrong answer is told
    "check_fake(fake_on(None))": "x has the device 'meta', and result 0 'cpu'",
    "check_fake(fake_on('meta'))": "x has the device 'cpu', and result 0 'meta'",
    "check_backward(one_by_torch)": "a product of PyTorch's, with 640 numbers",
    "check_backward(by_broadcasting)": "`product` was not called",
    "check_backward(half_by_broadcasting)": "a product without `product` made 15360 numbers on its way",
    "check_backward(without_numbers)": "the gradient of x is not an ordinary tensor on the CPU",
    "check_scaled(scaled((0, 1)))": "wrong: row m of the product times scales[m], then the residual (tiles of 128x128)",
}
test_wrong_answers_get_hints = exercises.wrong_answers_get_hints(HINTS)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The chapter's checks, its own solutions, and other answers."""
    solutions = "\n\n\n".join(notebooks.definitions(exercises.cell(CHAPTER, f"ex{n}-solution")) for n in range(2, 7))
    return exercises.judges(CHAPTER, tmp_path_factory.mktemp("answers"), f"{SETUP}{solutions}\n\n{ANSWERS}")
