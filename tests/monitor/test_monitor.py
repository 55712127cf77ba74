"""The engine: sums over batches equal one pass, padding and lengths do not matter, undefined is said."""

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor

from scalepod import ScalePOD
from scalepod.field import lag_covariance, reynolds
from scalepod.pod import field_pod, lag_pod
from scalepod.scalogram import scalogram


def attention(n: int, n_tokens: int, seed: int = 0, signed: bool = False, dtype: torch.dtype = torch.float64) -> Tensor:
    logits = torch.randn(n, n_tokens, n_tokens, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2
    if not signed:
        logits = logits.masked_fill(~torch.ones(n_tokens, n_tokens, dtype=torch.bool).tril(), -torch.inf)
    return logits.softmax(-1)


def analysed(*batches, **options):
    monitor = ScalePOD(**options)
    for batch in batches:
        monitor.update(*batch) if isinstance(batch, tuple) else monitor.update(batch)
    return monitor.compute()


def assert_same(one, other, rtol=1e-9):
    assert one.scalars().keys() == other.scalars().keys()
    for name, value in one.scalars().items():
        # The spectrum of a narrow window ends in eigenvalues near the rounding floor, and the fit weighs them fully.
        assert value == pytest.approx(other.scalars()[name], rel=1e-4 if "t_spec" in name else rtol), name
    torch.testing.assert_close(one.scalogram, other.scalogram, rtol=rtol, atol=1e-14)
    torch.testing.assert_close(one.lag.eigenvalues, other.lag.eigenvalues, rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("burn_in", [0, 5])
def test_record_holds_what_the_functions_give(signed, burn_in):
    attn = attention(9, 24, signed=signed)
    found = analysed(attn[:4], attn[4:], burn_in=burn_in)
    _, u = reynolds(attn)
    R = lag_covariance(u, signed=signed, burn_in=burn_in)
    assert found.signed == signed
    assert (found.n_snapshots, found.n_tokens, found.n_queries) == (9, 24, 24 - burn_in)
    assert found.energy == pytest.approx(float((u[:, burn_in:] ** 2).sum() / 9))
    torch.testing.assert_close(found.lag_energy, R.diagonal(), rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(
        found.scalogram, scalogram(R, found.scales, n_queries=24 - burn_in), rtol=1e-9, atol=1e-14
    )
    assert found.mean_profile.sum() == pytest.approx(1)
    assert sum(found.bands.values()) == pytest.approx(1)
    field, lag = field_pod(attn, found.windows, burn_in=burn_in), lag_pod(R, found.windows)
    torch.testing.assert_close(found.field.eigenvalues, field.eigenvalues, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.lag.eigenvalues, lag.eigenvalues, rtol=1e-9, atol=1e-12)
    assert found.h_star[0.10] == found.scalars()["h_star_0.10"]
    assert found.lag_h_star[0.05] == found.scalars()["lag_h_star_0.05"]
    assert found.t_spec == found.scalars()["t_spec"]
    assert found.lag_t_spec == found.scalars()["lag_t_spec"]
    assert len(found.window_names) == len(found.windows) == len(found.window_lags) == 4 + len(found.dominant_lags)


def test_energy_is_the_sum_of_both_spectra():
    found = analysed(attention(8, 16))
    assert float(found.field.eigenvalues[0].sum()) == pytest.approx(found.energy)
    assert float(found.lag.eigenvalues[0].sum()) == pytest.approx(found.energy)


def test_batches_add_up():
    attn = attention(12, 20)
    assert_same(analysed(attn), analysed(*attn.split(5)))


def test_without_the_field_pod_the_rest_is_the_same():
    attn = attention(8, 16)
    off = analysed(attn, field=False)
    assert off.field is None
    assert off.h_star == {}
    assert math.isnan(off.t_spec)
    on = {name: value for name, value in analysed(attn).scalars().items() if not name.startswith(("t_spec", "h_star"))}
    assert off.scalars() == on


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("signed", [False, True])
def test_padding_is_as_if_it_were_not_there(side, signed):
    long, short = attention(6, 20, signed=signed), attention(6, 13, seed=1, signed=signed)
    padded = torch.full((6, 20, 20), torch.nan, dtype=long.dtype)  # whatever a model leaves there
    valid = torch.zeros(6, 20, dtype=torch.bool)
    text = slice(7, 20) if side == "left" else slice(0, 13)
    padded[:, text, text], valid[:, text] = short, True
    assert_same(analysed(long, (padded, valid)), analysed(long, short))


@pytest.mark.parametrize("signed", [False, True])
def test_documents_of_different_lengths_in_any_order(signed):
    parts = [attention(3, n, seed=n, signed=signed) for n in (9, 16, 12)]
    assert_same(analysed(*parts), analysed(*parts[::-1]))


@pytest.mark.parametrize("signed", [False, True])
def test_a_monitor_that_saw_nothing_can_be_given_room(signed):
    attn = attention(5, 9, signed=signed)
    empty = ScalePOD()
    empty.grow(9, signed=signed)
    assert (empty.n_tokens, empty.signed) == (9, signed)
    empty.update(attn)
    assert_same(empty.compute(), analysed(attn))


def test_mean_of_a_query_is_over_the_documents_that_have_it():
    short, long = attention(3, 6), attention(4, 10, seed=1)
    found = analysed(short, long)
    energy = 0.0
    for query in range(10):
        rows = [doc[query] for doc in long] + (
            [torch.nn.functional.pad(doc[query], (0, 4)) for doc in short] if query < 6 else []
        )
        mean = sum(rows) / len(rows)
        energy += sum(float(((row - mean) ** 2).sum()) for row in rows) / 7
    assert found.energy == pytest.approx(energy)
    assert found.n_queries == pytest.approx((3 * 6 + 4 * 10) / 7)


def test_documents_that_hold_nan_are_left_out_and_counted():
    attn = attention(7, 12)
    broken = attn.clone()
    broken[2, 5, 3], broken[4, 0, 0] = torch.nan, torch.inf
    found = analysed(broken)
    assert (found.n_snapshots, found.n_skipped) == (5, 2)
    assert_same(found, analysed(attn[[0, 1, 3, 5, 6]]))


def test_one_dominant_scale_stays_a_vector():
    n_tokens, lag = 96, 16
    x = torch.zeros(20, n_tokens, n_tokens, dtype=torch.float64)
    tau = torch.arange(n_tokens)
    wave = torch.cos(2 * math.pi * tau / lag) * torch.exp(-((tau - 40.0) ** 2) / 400)
    for s in range(20):
        for i in range(n_tokens):
            x[s, i, : i + 1] = (-1) ** s * wave[: i + 1].flip(0)
    found = analysed(x)
    assert found.dominant_lags.shape == found.dominant_scales.shape == (1,)
    assert float(found.dominant_lags[0]) == pytest.approx(lag, rel=0.1)
    assert found.scalars()["dominant_lag"] == float(found.dominant_lags[0])


def test_identical_documents_have_nothing_but_zero_energy():
    found = analysed(attention(1, 12).expand(5, -1, -1))
    assert found.energy == 0
    assert math.isnan(found.mean_lag)
    assert math.isnan(found.t_spec)
    assert found.bands == {}
    assert {name for name, value in found.scalars().items() if value} == set()
    assert "0 eigenvalues above the numerical floor" in found.field_fit.reason(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_maps(dtype):
    attn = attention(10, 16, dtype=torch.float32)
    exact, found = analysed(attn.double()), analysed(attn.to(dtype))
    assert found.energy == pytest.approx(exact.energy, rel=torch.finfo(dtype).eps * 4)


def test_inside_autocast():
    attn = attention(10, 16, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        inside = analysed(attn)
    assert inside.scalars() == analysed(attn).scalars()


def test_reset_pickle_and_copy():
    attn = attention(6, 10)
    monitor = ScalePOD()
    monitor.update(attention(4, 10, signed=True))
    monitor.reset()
    assert monitor.n_tokens == 0
    monitor.update(attn)
    expected = monitor.compute().scalars()
    assert expected == analysed(attn).scalars()
    assert pickle.loads(pickle.dumps(monitor)).compute().scalars() == expected
    assert copy.deepcopy(monitor).compute().scalars() == expected


def test_options_are_used():
    found = analysed(
        attention(8, 16),
        n_modes=2,
        omega0=7.0,
        bands={"near": 3},
        epsilons=(0.2, 0.005),
        fit_range=(2, 5),
        scales=[2.0, 3.0, 4.0],
    )
    assert found.field.modes.shape[1] == found.lag.modes.shape[1] == 2
    assert found.bands == {"near": 1.0}
    assert found.scales.tolist() == [2.0, 3.0, 4.0]
    assert int(found.field_fit.n_points[0]) == 4
    assert {"h_star_0.20", "h_star_0.005", "t_spec_near"} <= found.scalars().keys()
    assert analysed(attention(8, 16), bands={}).bands == {}


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([torch.ones(2, 4, 8, 8)], r"attn must be \[B, T, T\].*average over heads first"),
        ([torch.ones(2, 8, 7)], r"attn must be \[B, T, T\], query by key: got shape \(2, 8, 7\)"),
        ([(attention(2, 8), torch.ones(2, 7).bool())], r"valid must be \[B, T\] = \(2, 8\)"),
        ([attention(2, 8, signed=True)], "attention above the diagonal in a field that was declared causal"),
        ([attention(1, 8)], "needs at least 2 documents with finite attention: got 1"),
        ([attention(2, 8) * torch.nan], "got 0, and left out 2"),
    ],
)
def test_errors(batches, message):
    with pytest.raises(ValueError, match=message):
        analysed(*batches, signed=False)


def test_a_field_shows_late_that_it_looks_both_ways():
    causal, both = attention(3, 8), attention(4, 8, seed=1, signed=True)
    one = attention(2, 1)
    assert_same(analysed(one, causal, both), analysed(both, causal, one))
    assert analysed(one, causal, both).signed


def test_a_loaded_state_knows_its_direction():
    monitor, other = ScalePOD(), ScalePOD()
    monitor.persistent(True)
    other.persistent(True)
    monitor.update(attention(5, 8, signed=True))
    other.load_state_dict(monitor.state_dict())
    with pytest.warns(UserWarning, match="called before the ``update`` method"):  # torchmetrics counts updates only
        found = other.compute()
    assert found.scalars() == monitor.compute().scalars()


def test_documents_without_a_query_do_not_count():
    attn = attention(6, 12)
    valid = torch.ones(6, 12, dtype=torch.bool)
    valid[2], valid[4, 3:] = False, False  # a filler row, and a document that burn-in uses up
    found = analysed((attn, valid), burn_in=3)
    assert (found.n_snapshots, found.n_skipped) == (4, 2)
    assert_same(found, analysed(attn[[0, 1, 3, 5]], burn_in=3))


def test_forward_of_documents_of_different_lengths():
    monitor = ScalePOD()
    for n_tokens in (8, 12):
        alone = monitor(attention(4, n_tokens, seed=n_tokens))
        assert (alone.n_snapshots, alone.n_tokens) == (4, n_tokens)
    assert_same(monitor.compute(), analysed(attention(4, 8, seed=8), attention(4, 12, seed=12)))
