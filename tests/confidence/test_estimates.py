import math

import pytest
import torch

from scalepod import ScalePOD
from scalepod.confidence.estimates import PartSpectra, estimates
from scalepod.scalogram import equivalent_lag
from scalepod.spectrum import fractional_rank, spectral_concentration

BANDS = {"fine": 4, "medium": 12}
EPSILONS = (0.10, 0.05)


def attention(n, n_tokens, causal, seed):
    """Maps whose documents attend every sixth key by their own amount."""
    generator = torch.Generator().manual_seed(seed)
    lag = torch.arange(n_tokens)[:, None] - torch.arange(n_tokens)
    logits = 0.3 * torch.randn(n, n_tokens, n_tokens, generator=generator, dtype=torch.float64)
    logits += torch.rand(n, 1, 1, generator=generator) * 3 * (lag % 6 == 0)
    return logits.masked_fill(lag < 0, -torch.inf).softmax(-1) if causal else logits.softmax(-1)


@pytest.fixture(scope="module", params=[True, False], ids=["causal", "signed"])
def analyses(request):
    """Analyses of three sets of documents."""
    found = []
    for seed in range(3):
        monitor = ScalePOD(bands=BANDS, epsilons=EPSILONS, fit_range=(2, 12))
        monitor.update(attention(20, 32, request.param, seed))
        found.append(monitor.compute())
    return found


def parts_of(analyses, field=True):
    windows = slice(0, 1 + len(BANDS))
    lag = torch.stack([each.lag.eigenvalues[windows] for each in analyses])
    return PartSpectra(
        torch.stack([each.lag_energy for each in analyses]),
        torch.stack([each.scale_energy for each in analyses]),
        lag[..., :26],
        lag.sum(-1),
        torch.stack([each.field.eigenvalues[windows] for each in analyses]) if field else None,
    )


def values_of(analyses, **options):
    first = analyses[0]
    given = {
        "bands": BANDS,
        "epsilons": EPSILONS,
        "scales": first.scales,
        "near": float(first.dominant_scales[0]) if len(first.dominant_scales) else None,
        "signed": first.signed,
        "lag_fit_range": (2, 12),
        "field_fit_range": (2, 12),
    }
    return estimates(parts_of(analyses), **(given | options))


def test_they_are_the_logged_values_under_the_same_names(analyses):
    found = values_of(analyses)
    for p, analysis in enumerate(analyses):
        logged = analysis.scalars()
        for name in found.keys() - {"dominant_lag"}:
            mine = float(found[name][p])
            assert (math.ceil(mine) if "h_star" in name else mine) == pytest.approx(logged[name], rel=1e-9), name
    kinds = {name.removesuffix("_fine").removesuffix("_medium") for name in found}
    assert kinds == {
        *("energy", "mean_lag", "dominant_lag", "band", "lag_t_spec", "t_spec"),
        *(f"{kind}h_star_{epsilon}" for kind in ("", "lag_") for epsilon in ("0.10", "0.05")),
    }
    assert all(value.shape == (3,) for value in found.values())


def test_effective_ranks_are_fractional_and_count_what_was_cut(analyses):
    found = values_of(analyses)
    whole = torch.stack([each.lag.eigenvalues[:3] for each in analyses])
    for m, suffix in enumerate(["", "_fine", "_medium"]):
        expected = fractional_rank(whole[:, m], 0.05)
        torch.testing.assert_close(found[f"lag_h_star_0.05{suffix}"], expected)
    assert (found["lag_h_star_0.05"] != found["lag_h_star_0.05"].round()).all()


def test_the_dominant_lag_is_that_of_the_peak_near_the_given_scale(analyses):
    scales = analyses[0].scales
    energy = torch.exp(-((scales / torch.tensor([[7.0], [8.0], [30.0]])).log() ** 2))
    parts = parts_of(analyses)._replace(scale_energy=energy)
    found = estimates(parts, bands=BANDS, epsilons=(), scales=scales, near=7.5, signed=analyses[0].signed)
    expected = equivalent_lag(torch.tensor([7.0, 8.0], dtype=torch.float64))
    torch.testing.assert_close(found["dominant_lag"][:2], expected)
    assert math.isnan(float(found["dominant_lag"][2]))


def test_every_window_may_have_its_own_fit_range(analyses):
    ranges = torch.tensor([[1, 10], [2, 8], [0, 0]])
    found = values_of(analyses, lag_fit_range=ranges)
    lag = analyses[1].lag.eigenvalues
    for m, name in enumerate(["lag_t_spec", "lag_t_spec_fine"]):
        first, last = ranges[m].tolist()
        assert float(found[name][1]) == pytest.approx(float(spectral_concentration(lag[m], (first, last)).t_spec))
    assert torch.isnan(found["lag_t_spec_medium"]).all()


def test_without_field_bands_and_peak_their_values_are_absent(analyses):
    parts = parts_of(analyses, field=False)
    parts = parts._replace(lag=parts.lag[:, :1], lag_total=parts.lag_total[:, :1])
    found = estimates(parts, bands={}, epsilons=(0.1,), scales=analyses[0].scales, near=None)
    assert list(found) == ["energy", "mean_lag", "lag_t_spec", "lag_h_star_0.10"]


def test_without_energy_shares_and_slopes_are_undefined():
    zeros = PartSpectra(torch.zeros(2, 8), torch.zeros(2, 3), torch.zeros(2, 2, 8), torch.zeros(2, 2), None)
    found = estimates(zeros, bands={"fine": 4}, epsilons=(0.1,), scales=torch.tensor([2.0, 3.0, 4.0]), near=3.0)
    undefined = {name for name, value in found.items() if torch.isnan(value).all()}
    assert undefined == {"mean_lag", "band_fine", "dominant_lag", "lag_t_spec", "lag_t_spec_fine"}
    assert all((found[name] == 0).all() for name in found.keys() - undefined)


def test_shapes_that_do_not_fit_are_named(analyses):
    parts = parts_of(analyses)
    options = {"bands": BANDS, "epsilons": (), "scales": analyses[0].scales, "near": None}
    for name in ("lag", "lag_total", "field"):
        bad = parts._replace(**{name: getattr(parts, name)[:, :2]})
        with pytest.raises(ValueError, match=rf"{name} of 3 parts in 3 windows .* must have shape \(3, 3\) in front"):
            estimates(bad, **options)
    with pytest.raises(ValueError, match=r"scale_energy of 3 parts .* must have shape \(3,\) in front, got \(2,"):
        estimates(parts._replace(scale_energy=parts.scale_energy[:2]), **options)
