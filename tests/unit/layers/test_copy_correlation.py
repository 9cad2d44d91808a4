"""CoCoNet's transitions at their edges: rows with next to nothing in them, and widths that a square cannot hold."""

from __future__ import annotations

import pytest
import torch

from catchline.papers.coconet import log_width, positional_correlation, rescaled_rows, transfers


def test_a_token_that_looks_at_itself_only() -> None:
    """In float32 nothing is left of its row without the diagonal; it is spread evenly, and the gradient is finite."""
    attention = torch.eye(4)[None].clone()
    attention[0, 1] = torch.tensor([1e-12, 1.0, 3e-12, 0.0])
    attention.requires_grad_()
    allowed = transfers(torch.ones(1, 4).bool(), torch.arange(4)[None], "zero_renorm")
    rows = rescaled_rows(attention, allowed)
    torch.testing.assert_close(rows.sum(-1), torch.ones(1, 4))
    torch.testing.assert_close(rows[0, 0], torch.tensor([0, 1 / 3, 1 / 3, 1 / 3]))
    assert rows[0, 1, 2] > rows[0, 1, 0] > rows[0, 1, 3] > 0
    rows.square().sum().backward()
    assert attention.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("argument", [-1e4, -200.0, -40.0, 40.0])
def test_extreme_widths(dtype: torch.dtype, argument: float) -> None:
    """sigma far below what its square can hold: the two neighbours share all, gradients are finite."""
    size = 30
    gate = torch.full((1, size), argument, dtype=dtype, requires_grad=True)
    mask, ids = torch.ones(1, size).bool(), torch.arange(size)[None]
    widths = log_width(gate, mask.sum(-1))
    matrix = positional_correlation(widths, mask, ids)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(1, size, dtype=dtype))
    if argument < 0:
        torch.testing.assert_close(matrix[0, 4, [3, 5]], torch.tensor([0.5, 0.5], dtype=dtype))
    else:  # from the distance of 16 on all are alike
        assert matrix[0, 0, 15] > matrix[0, 0, 16] == matrix[0, 0, 29]
    matrix[0, 4].square().sum().backward()
    assert gate.grad.isfinite().all()
