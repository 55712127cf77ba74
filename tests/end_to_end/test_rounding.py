"""What rounding leaves where there is nothing: no mode, and no reason to refuse documents."""

import numpy as np
import pytest
import torch
from end_to_end.ensembles import analysed, gabor_profiles, plant


def test_the_eigenvalue_that_row_sums_take_away_enters_no_fit():
    """Rows add up to 1, so every row of the fluctuation adds up to 0 and R has rank T - 1, however little varies."""
    causal = torch.ones(30, 30, dtype=torch.bool).tril()
    for seed in range(4):
        for size in (1.0, 0.1, 0.01, 0.001):
            logits = size * torch.randn(64, 30, 30, generator=torch.Generator().manual_seed(seed)).double()
            found = analysed(logits.masked_fill(~causal, -torch.inf).softmax(-1), confidence=False)
            assert float(found.lag.eigenvalues[0, -1]) == 0
            assert int(found.lag_fit.n_points[0]) == 29


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fluctuations_at_some_lags_only_leave_windows_with_rounding_alone(dtype):
    for period in (5.3, 9.1):
        found = analysed(plant(gabor_profiles([period], 96), np.ones((1, 2)), 20, 128).attn.to(dtype))
        assert found.lag_h_star[0.10] == 1
