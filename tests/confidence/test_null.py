import numpy as np
import pytest
import torch
from scipy.optimize import root

from scalepod.confidence.null import excess, null_spectra, surrogate
from scalepod.field import from_lag, lag_covariance, reynolds, to_lag
from scalepod.pod import field_pod, lag_pod
from scalepod.scalogram import scale_grid, scalogram
from scalepod.spectrum import effective_rank, spectral_concentration

SCALES = scale_grid(2.0, 8.0, 2)


def attention(n, n_tokens, signed=False, seed=0):
    """Random attention, stronger at small distances."""
    logits = 2 * torch.randn(n, n_tokens, n_tokens, generator=torch.Generator().manual_seed(seed)).double()
    position = torch.arange(n_tokens)
    logits -= (position[:, None] - position).abs() / 4
    return (logits if signed else logits.masked_fill(position > position[:, None], -torch.inf)).softmax(-1)


def padding(n, n_tokens):
    return torch.arange(n_tokens) < torch.linspace(n_tokens, n_tokens / 2, n)[:, None]


def incoherent(n, n_tokens, seed=0):
    """Fluctuations of independent entries, stronger at small lags, that add up to 0 in every row."""
    lag = torch.arange(n_tokens).double()
    exists = torch.ones(n_tokens, n_tokens).tril()
    variance = torch.exp(-lag / 6) * exists
    x = torch.randn(n, n_tokens, n_tokens, generator=torch.Generator().manual_seed(seed)).double() * variance.sqrt()
    x -= x.sum(-1, keepdim=True) * variance / variance.sum(-1, keepdim=True)
    return reynolds(from_lag(x))[1]


def coherent(n, n_tokens, seed=0):
    """The same with three lag profiles that all queries of a document follow in the same amount."""
    rng = torch.Generator().manual_seed(seed)
    profiles = torch.randn(3, n_tokens, generator=rng).double() * torch.exp(-torch.arange(n_tokens) / 12)
    exists = torch.ones(n_tokens, n_tokens).double().tril()
    x = (torch.randn(n, 3, generator=rng).double() @ profiles)[:, None] * exists
    x -= x.sum(-1, keepdim=True) * exists / exists.sum(-1, keepdim=True)
    return reynolds(from_lag(x))[1] + incoherent(n, n_tokens, seed + 1)


def surrogate_by_loop(u, seed, signed):
    """The definition, entry by entry; the gain is the root of the expected energies."""
    n, n_tokens, _ = u.shape
    coin = torch.randint(0, 2, (n, 2 * n_tokens - 1), generator=torch.Generator().manual_seed(seed)).numpy()
    rows = to_lag(u, signed).numpy()
    lags = range(1 - n_tokens, n_tokens) if signed else range(n_tokens)
    present = (rows != 0).any(-1)
    count = np.maximum(present.sum(0), 1)[:, None]
    variance, energy = (rows**2).mean(0) * (1 - 1 / count), (rows**2).mean(0).sum(0)
    row_sum = (rows.sum(-1) ** 2).mean(0)[:, None]

    def lost(log_power):
        q = np.exp(log_power) * variance
        share = np.nan_to_num(q / np.maximum(q.sum(1, keepdims=True), 1e-300))
        return (q - q * share + row_sum * share**2).sum(0) - energy

    power = np.exp(root(lost, np.full(len(energy), 0.1), tol=1e-12).x)
    q = power * variance
    result = np.zeros(u.shape)
    for i in range(n_tokens):
        x = np.stack([rows[s, i] * [2 * coin[s, n_tokens - 1 - tau] - 1 for tau in lags] for s in range(n)])
        x = np.sqrt(power) * x
        for s in np.flatnonzero(present[:, i]):
            y = x[s] - x.sum(0) / count[i]
            y -= (y.sum() - rows[s, i].sum()) * q[i] / q[i].sum()
            for tau, value in zip(lags, y, strict=True):
                if 0 <= i - tau < n_tokens:
                    result[s, i, i - tau] = value
    return result


def ensembles():
    """Fluctuations to make surrogates of, and whether their lags are signed."""
    short = reynolds(attention(10, 13), padding(10, 13))[1]
    no_softmax = attention(10, 13) * torch.rand(10, 13, 1, generator=torch.Generator().manual_seed(3))
    return [
        pytest.param(reynolds(attention(9, 11))[1], False, id="causal"),
        pytest.param(reynolds(attention(9, 11, signed=True))[1], True, id="signed"),
        pytest.param(short, False, id="padded"),
        pytest.param(reynolds(no_softmax)[1], False, id="rows of any sum"),
    ]


@pytest.mark.parametrize(("u", "signed"), ensembles())
def test_equals_the_definition_by_loops(u, signed):
    np.testing.assert_allclose(surrogate(u, 5, signed=signed), surrogate_by_loop(u, 5, signed), atol=1e-5)


@pytest.mark.parametrize(("u", "signed"), ensembles())
def test_every_lag_keeps_its_energy_on_average(u, signed):
    draws = torch.stack([lag_covariance(surrogate(u, seed, signed=signed), signed).diagonal() for seed in range(300)])
    error = draws.std(0) / len(draws) ** 0.5
    energy = lag_covariance(u, signed).diagonal()
    assert bool(((draws.mean(0) - energy).abs() <= 4.5 * error + 1e-6 * energy.sum()).all())
    assert float((error / energy).median()) < 0.02  # so that a loss of a tenth, without gain, would show


@pytest.mark.parametrize(("u", "signed"), ensembles())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_sums_of_rows_and_over_documents_are_kept(u, signed, dtype):
    made = surrogate(u.to(dtype), 0, signed=signed)
    assert made.dtype == dtype
    torch.testing.assert_close(made.sum(-1), u.to(dtype).sum(-1), atol=1e-6, rtol=0)
    torch.testing.assert_close(made.sum(0), torch.zeros_like(made[0]), atol=1e-6, rtol=0)
    absent = ~u.any(-1)
    assert not made[absent].any()
    assert signed or not made.triu(1).any()


def test_diagonals_keep_their_course_and_lose_their_company():
    u = reynolds(attention(60, 32))[1]
    made = surrogate(u, 0)
    for tau in (3, 8):
        before, after = u.diagonal(-tau, 1, 2), made.diagonal(-tau, 1, 2)
        course = torch.nn.functional.cosine_similarity(before, after, dim=1).abs()
        assert float(course.median()) > 0.9
    u = coherent(200, 16)
    company = []
    for x in (u, surrogate(u, 0)):
        R = lag_covariance(x)
        correlation = R / (R.diagonal() * R.diagonal()[:, None]).sqrt()
        company.append(float(correlation[~torch.eye(16).bool()].abs().mean()))
    assert company[0] > 3 * company[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_neither_half_precision_nor_autocast_coarsens_it(dtype):
    u = reynolds(attention(6, 9))[1].to(dtype)
    expected = surrogate(u.float(), 0), *null_spectra(u.float(), SCALES)
    with torch.autocast("cpu", torch.bfloat16):
        for found, exact in zip((surrogate(u, 0), *null_spectra(u, SCALES)), expected, strict=True):
            assert found.equal(exact)


def test_the_signs_come_from_the_seed_alone():
    u = reynolds(attention(6, 9).float())[1]
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = surrogate(u, 7)
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(1)
    assert surrogate(u, 7).equal(first)
    assert not surrogate(u, 8).equal(first)
    spectra = null_spectra(u, SCALES, n_surrogates=2, seed=7)
    again = null_spectra(u, SCALES, seed=8)
    assert all(both[1].equal(second[0]) for both, second in zip(spectra, again, strict=True))


@pytest.mark.parametrize(("u", "signed"), ensembles())
def test_spectra_are_those_of_the_surrogates(u, signed):
    spectra = null_spectra(u, SCALES, 5.5, n_queries=7.0, signed=signed, n_surrogates=2, seed=3)
    for p in range(2):
        made = surrogate(u, 3 + p, signed=signed)
        R = lag_covariance(made, signed)
        torch.testing.assert_close(spectra.lag_eigenvalues[p], lag_pod(R).eigenvalues[0], atol=1e-13, rtol=0)
        torch.testing.assert_close(spectra.scale_energy[p], scalogram(R, SCALES, 5.5, 7.0).sum(-1))
        energy = float(R.trace())
        assert float(spectra.lag_eigenvalues[p].sum()) == pytest.approx(energy)
        assert float(spectra.field_eigenvalues[p].sum()) == pytest.approx(energy)
        torch.testing.assert_close(spectra.field_eigenvalues[p], field_pod(made).eigenvalues[0], atol=1e-13, rtol=0)


def test_rounding_of_single_precision_is_no_mode():
    spectra = null_spectra(reynolds(attention(12, 10).float())[1], SCALES)
    assert spectra.lag_eigenvalues.dtype == torch.float64
    assert float(spectra.lag_eigenvalues[0, -1]) == 0  # rows of sum 0 have one lag less
    assert float(spectra.field_eigenvalues[0, -1]) == 0  # and documents of mean 0 one document
    assert int((spectra.lag_eigenvalues > 0).sum()) == 9
    assert int((spectra.field_eigenvalues > 0).sum()) == 11


def statistics(lag, field, scale_energy):
    """Numbers by which ensembles are compared, [..., n]."""
    ranks = [effective_rank(spectrum, eps) for spectrum in (lag, field) for eps in (0.3, 0.1)]
    slopes = [spectral_concentration(spectrum, (1, 12)).t_spec for spectrum in (lag, field)]
    return torch.stack([value.double() for value in (*ranks, *slopes, *scale_energy.log().unbind(-1))], -1)


def statistics_of(u):
    R = lag_covariance(u)
    return statistics(lag_pod(R).eigenvalues[0], field_pod(u).eigenvalues[0], scalogram(R, SCALES).sum(-1))


def in_scatters(u, n_surrogates=16):
    """What each statistic of u has beyond its surrogates, in standard deviations of them (ranks: in modes at least)."""
    null = statistics(*null_spectra(u, SCALES, n_surrogates=n_surrogates))
    least = torch.tensor([0.5] * 4 + [0.0] * (null.shape[-1] - 4))
    return (statistics_of(u) - null.mean(0)) / torch.maximum(null.std(0), least)


def test_an_ensemble_without_structure_has_no_excess():
    for seed in range(3):
        assert float(in_scatters(incoherent(50, 24, seed)).abs().max()) < 4


def test_the_null_of_a_null_is_null():
    u = coherent(50, 24)
    made = surrogate(u, 100)
    assert float(in_scatters(made).abs().max()) < 4
    once, twice = (statistics(*null_spectra(x, SCALES, n_surrogates=16)) for x in (u, made))
    apart = (once.mean(0) - twice.mean(0)).abs() / torch.maximum(once.std(0), torch.tensor(0.1))
    assert float(apart.max()) < 4


def test_coherent_modes_stand_out():
    found = in_scatters(coherent(50, 24))
    assert float(found[:6].max()) < -4  # fewer modes, and steeper spectra
    assert float(found[6:].abs().max()) > 4  # and scales of their own


def test_excess_is_the_value_less_the_mean_of_the_surrogates():
    null = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    spectrum = torch.tensor([8.0, 0.1, 0.0, 0.0])
    assert excess(spectrum, null, lambda values: effective_rank(values, 0.1)) == 1 - (3 + 4) / 2
    assert excess(spectrum, null, lambda values: values[..., 0]) == 8 - 2.5
    assert np.isnan(excess(spectrum, null, lambda values: spectral_concentration(values).t_spec))


def test_a_lag_that_outweighs_all_others_stays_finite():
    # lag 0 moves against all the others together, which independent lags of their energy cannot balance
    x = torch.zeros(30, 12, 12).double()
    x[:, :, 1:] = torch.randn(30, 1, 1, generator=torch.Generator().manual_seed(0)).double()
    x = x * torch.ones(12, 12).tril()
    x[:, :, 0] = -x.sum(-1)
    u = reynolds(from_lag(x))[1]
    made = surrogate(u, 0)
    assert bool(made.isfinite().all())
    torch.testing.assert_close(made.sum(-1), torch.zeros(30, 12).double(), atol=1e-9, rtol=0)
    kept = lag_covariance(made).diagonal() / lag_covariance(u).diagonal()
    assert 0.05 < float(kept[0]) < 1


def test_documents_that_do_not_differ_have_no_null():
    spectra = null_spectra(torch.zeros(4, 6, 6), SCALES)
    assert not any(part.any() for part in spectra)
    assert not surrogate(torch.zeros(2, 1, 1), 0).any()


def test_wrong_input_is_named():
    u = reynolds(attention(4, 5))[1]
    with pytest.raises(ValueError, match=r"fluctuation must have 3 dimensions, .* got shape \(5, 5\)"):
        surrogate(u[0], 0)
    with pytest.raises(ValueError, match=r"fluctuation of shape \(1, 5, 5\) holds 1 snapshots, at least 2 needed"):
        null_spectra(u[:1], SCALES)
    with pytest.raises(ValueError, match=r"fluctuation of shape \(4, 5, 5\) holds 100 non-finite values"):
        surrogate(u * torch.nan, 0)
    with pytest.raises(ValueError, match="n_surrogates must be positive and finite, got 0"):
        null_spectra(u, SCALES, n_surrogates=0)
