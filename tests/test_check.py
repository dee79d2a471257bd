"""check and reference: a wrong result must never pass, and the message must say where it went wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cutetut import reference
from cutetut.check import CheckFailed, check


def test_success_prints_one_line_without_noise(capsys):
    expected = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    report = check(expected.float() + 3e-5, expected, atol=1e-4)
    assert capsys.readouterr().out == "C: 3x4 float32 matches float64 within 1e-04\n"
    assert 2e-5 < report.max_abs_error < 4e-5
    assert report.shape == (3, 4)


@pytest.mark.parametrize(
    ("atol", "rtol", "text"),
    [
        (0, 0.0, "exactly"),
        (1e-3, 0.01, "within 1e-03 + 1e-02 * |expected|"),
        (0.0, 0.5, "within 5e-01 * |expected|"),
        (1.5e-4, 0.0, "within 0.00015"),
    ],
)
def test_the_tolerance_is_printed_unrounded(capsys, atol, rtol, text):
    check(np.ones(2), np.ones(2), atol=atol, rtol=rtol, name="D")
    assert capsys.readouterr().out == f"D: 2 float64 matches float64 {text}\n"


def test_failure_names_the_first_index_the_count_and_the_largest_error():
    expected = np.zeros((4, 5))
    actual = expected.copy()
    actual[1, 3], actual[2, 0] = 0.5, -2.0
    with pytest.raises(CheckFailed) as failure:
        check(actual, expected, atol=0.1, name="out")
    text = str(failure.value)
    assert "out: 2 of 20 elements are wrong (4x5 float64 against float64, allowed: within 1e-01)" in text
    assert "first at [1, 3]: actual 0.5, expected 0" in text
    assert "largest error 2 at [2, 0]" in text


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("tolerance", [{"atol": 1e30}, {"atol": 0.0, "rtol": 1e30}])
def test_nan_and_inf_never_pass_a_finite_reference(bad, tolerance):
    actual = torch.ones(8)
    actual[5] = bad
    with pytest.raises(CheckFailed, match=r"first at \[5\]"):
        check(actual, torch.ones(8), **tolerance)
    with pytest.raises(CheckFailed):
        check(torch.ones(8), actual, **tolerance)  # nor the other way round


def test_the_same_nan_and_inf_pass_and_a_different_inf_does_not():
    values = np.array([math.nan, math.inf, -math.inf, 1.0])
    assert check(values, values.copy(), atol=0).max_abs_error == 0.0
    with pytest.raises(CheckFailed, match=r"first at \[1\]"):
        check(values * [1, -1, 1, 1], values, atol=1e30, rtol=1e30)


def test_nan_and_inf_are_counted():
    with pytest.raises(CheckFailed, match="NaN in 2 and Inf in 1"):
        check(np.array([math.nan, math.nan, math.inf, 0.0]), np.zeros(4), atol=1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_small_floats_are_compared_by_value(dtype, capsys):
    values = torch.tensor([0.5, 1.0, -2.0, 0.25])
    check(values.to(dtype), values.double(), atol=0)
    assert str(dtype).removeprefix("torch.") in capsys.readouterr().out
    with pytest.raises(CheckFailed):
        check((values * 2).to(dtype), values, atol=0.1)


def test_integers_are_compared_exactly_beyond_float64():
    big = np.array([2**62 + 1], dtype=np.int64)
    check(big, big, atol=0)
    with pytest.raises(CheckFailed, match="largest error 1 at"):
        check(big, big - 1, atol=0)


def test_shapes_must_agree_and_broadcasting_is_not_a_match():
    with pytest.raises(CheckFailed, match="shape 4x1 does not match the expected 4"):
        check(np.ones((4, 1)), np.ones(4), atol=1)


def test_an_empty_comparison_is_a_failure():
    with pytest.raises(CheckFailed, match="nothing was checked"):
        check(np.ones((0, 3)), np.ones((0, 3)), atol=1)


def test_untouched_output_is_pointed_out():
    with pytest.raises(CheckFailed, match="was the kernel launched"):
        check(torch.zeros(4), torch.ones(4), atol=0.1)


@pytest.mark.parametrize("atol", [-1.0, math.nan, math.inf])
def test_a_tolerance_that_lets_everything_pass_is_refused(atol):
    with pytest.raises(ValueError, match="atol"):
        check(np.ones(1), np.ones(1), atol=atol)


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="actual is object"):
        check(np.array([object()]), np.ones(1), atol=1)


def test_non_contiguous_tensors_compare_by_index():
    base = torch.arange(12.0).reshape(3, 4)
    check(base.T, base.numpy().T.copy(), atol=0)
    with pytest.raises(CheckFailed):
        check(base.T.reshape(3, 4), base, atol=0)


def test_gemm_is_the_sum_it_says(rng):
    A, B = rng.standard_normal((5, 7)), rng.standard_normal((3, 7))
    by_hand = [[sum(A[m, k] * B[n, k] for k in range(7)) for n in range(3)] for m in range(5)]
    np.testing.assert_allclose(reference.gemm(A, B), by_hand, rtol=1e-12)


def test_gemm_returns_what_it_was_given(rng):
    A = torch.randn(4, 4, dtype=torch.bfloat16)
    assert reference.gemm(A, A).dtype == torch.float64
    assert isinstance(reference.gemm(A.float().numpy(), A.float().numpy()), np.ndarray)


def test_softmax_survives_large_inputs(rng):
    x = rng.standard_normal((4, 9))
    by_hand = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(reference.softmax(x), by_hand, rtol=1e-12)
    np.testing.assert_allclose(reference.softmax(x + 5000.0), by_hand, rtol=1e-10)
    np.testing.assert_allclose(reference.softmax(x.T, axis=0), by_hand.T, rtol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_agrees_with_torch(causal):
    Q, K, V = (torch.randn(2, 3, 8, 16, dtype=torch.float64) for _ in range(3))
    theirs = torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=causal)
    torch.testing.assert_close(reference.attention(Q, K, V, causal=causal), theirs)


def test_causal_attention_aligns_the_last_query_with_the_last_key():
    Q, K = torch.zeros(2, 4), torch.zeros(5, 4)
    V = torch.eye(5)
    rows = reference.attention(Q, K, V, causal=True)
    torch.testing.assert_close(rows[0], torch.tensor([0.25] * 4 + [0.0], dtype=torch.float64))
    torch.testing.assert_close(rows[1], torch.full((5,), 0.2, dtype=torch.float64))
    with pytest.raises(ValueError, match="5 queries, 2 keys"):
        reference.attention(K, Q, Q, causal=True)
