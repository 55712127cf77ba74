"""What the callback tells of its own numbers, of single heads, and of modes from firing to firing."""

import math

import pytest
import torch
from tiny import TinyModule, tiny_loader, tiny_trainer

from scalepod import load_analyses
from scalepod.callbacks import ScalePODCallback
from scalepod.capture import capture_attention
from scalepod.heads import head_gram, head_moments, head_redundancy

LAYERS = ("01_layers.0", "02_layers.1")


def watch(tmp_path, *, max_steps=4, ckpt=None, module=None, **options):
    options = {"every_n_steps": 2, "n_snapshots": 16, "images": False, "on_error": "raise", **options}
    callback = ScalePODCallback(**options)
    torch.manual_seed(0)
    module = module or TinyModule()
    trainer = tiny_trainer(tmp_path, max_steps=max_steps, callbacks=[callback])
    trainer.fit(module, tiny_loader(), tiny_loader(seed=1), ckpt_path=ckpt)
    return callback, trainer


def test_errors_and_what_else_is_told_of_the_numbers(tmp_path):
    callback, trainer = watch(tmp_path)
    names = {
        *("mean_lag_se", "t_spec_se", "lag_h_star_0.10_fine_se", "band_fine_se", "h_star_growth", "lag_h_star_growth"),
        *("t_spec_excess", "t_spec_theil_sen", "t_spec_r2", "distinct_heads", "mode_stability", "lag_mode_stability"),
    }
    for layer in LAYERS:
        assert {f"scalepod_{name}/{layer}" for name in names} <= trainer.callback_metrics.keys()
    (_, kept), analyses = load_analyses(tmp_path / "scalepod_results" / "step_00000004.npz"), callback.analyses
    assert {layer: found.scalars() for layer, found in kept.items()} == {
        layer: found.scalars() for layer, found in analyses.items()
    }


def test_it_can_be_switched_off(tmp_path):
    callback, trainer = watch(tmp_path, confidence=False)
    assert all(found.confidence is None and found.heads is None for found in callback.analyses.values())
    assert not [name for name in trainer.callback_metrics if "_se/" in name or "growth" in name or "excess" in name]


def test_heads_are_those_of_every_sixth_document(tmp_path):
    callback, _ = watch(tmp_path)
    module = TinyModule()
    documents = next(iter(tiny_loader(seed=1, batch_size=16)))
    callback, _ = watch(tmp_path, module=module, max_steps=1)
    with torch.no_grad(), capture_attention(module, batch_size=16, heads="each") as record:
        module(documents[0])
    maps = record.result()
    for layer in ("layers.0", "layers.1"):
        heads = torch.stack([maps[f"{layer}/h{h}"] for h in range(2)], 1)[::6]
        expected = head_redundancy(head_gram(head_moments(heads)))
        found = callback.analyses[f"0{1 + int(layer[-1])}_{layer}"].heads
        torch.testing.assert_close(found.similarity[0], expected.similarity[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.distinct[0], expected.distinct[0], rtol=1e-4, atol=1e-5)


def test_each_head_as_a_layer_has_no_heads_to_compare(tmp_path):
    callback, _ = watch(tmp_path, heads="each")
    assert len(callback.analyses) == 4
    assert all(found.heads is None and found.confidence for found in callback.analyses.values())


def test_modes_are_followed_through_a_resume(tmp_path):
    straight, _ = watch(tmp_path / "straight", max_steps=6)
    first = ScalePODCallback(every_n_steps=2, n_snapshots=16, images=False, on_error="raise")
    torch.manual_seed(0)
    trainer = tiny_trainer(tmp_path / "first", max_steps=4, callbacks=[first])
    trainer.fit(TinyModule(), tiny_loader(), tiny_loader(seed=1))
    trainer.save_checkpoint(tmp_path / "four.ckpt")
    resumed, _ = watch(tmp_path / "second", max_steps=6, ckpt=tmp_path / "four.ckpt")
    for layer in LAYERS:
        one, other = straight.tracked[layer], resumed.tracked[layer]
        assert one.field_stability == other.field_stability
        assert 0 < one.field_stability <= 1.001
        assert torch.equal(one.field["whole"].modes, other.field["whole"].modes)
        assert one.lag["fine"].limit == other.lag["fine"].limit


def test_a_checkpoint_without_modes_resumes(tmp_path):
    _, trainer = watch(tmp_path / "first", max_steps=2)
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    stored = torch.load(tmp_path / "two.ckpt", weights_only=True)
    for state in stored["callbacks"].values():
        state.pop("modes", None)
    torch.save(stored, tmp_path / "old.ckpt")
    callback, _ = watch(tmp_path / "second", max_steps=4, ckpt=tmp_path / "old.ckpt")
    assert math.isnan(callback.tracked[LAYERS[0]].field_stability)


def test_modes_of_a_longer_run_are_not_those_of_this_one(tmp_path):
    """A callback that has been through one run, in another run that goes on from a checkpoint made without it."""
    callback, _ = watch(tmp_path / "long", max_steps=6)
    bare = tiny_trainer(tmp_path / "bare", max_steps=2)
    bare.fit(TinyModule(), tiny_loader(), tiny_loader(seed=1))
    bare.save_checkpoint(tmp_path / "bare.ckpt")
    seen = []
    callback._report = lambda *args: seen.append(callback.tracked[LAYERS[0]].field_stability)
    trainer = tiny_trainer(tmp_path / "next", max_steps=4, callbacks=[callback])
    trainer.fit(TinyModule(), tiny_loader(), tiny_loader(seed=1), ckpt_path=tmp_path / "bare.ckpt")
    assert math.isnan(seen[0])


def test_a_second_run_of_a_callback_follows_nothing(tmp_path):
    callback, _ = watch(tmp_path, max_steps=2)
    trainer = tiny_trainer(tmp_path / "again", max_steps=1, callbacks=[callback])
    callback.every_n_steps = None
    seen = []
    callback._report = lambda *args: seen.append(callback.tracked[LAYERS[0]].field_stability)
    trainer.fit(TinyModule(), tiny_loader(), tiny_loader(seed=1))
    assert math.isnan(seen[0])
    assert seen[1] > 0


def test_coherence_on_request(tmp_path):
    callback, trainer = watch(tmp_path, coherence=True, max_steps=1)
    found = {layer: analysis for layer, analysis in callback.analyses.items() if len(analysis.dominant_lags)}
    assert found
    for layer, analysis in found.items():
        assert analysis.coherence.gamma.shape == (len(analysis.dominant_lags), 12, 12)
        assert analysis.coherence_at(0).gamma.shape == (12, 12)
        assert f"scalepod_coherent_share/{layer}" in trainer.callback_metrics
    for layer in callback.analyses.keys() - found.keys():
        assert callback.analyses[layer].coherence is None


def test_coherence_needs_the_documents():
    with pytest.raises(ValueError, match="coherence=True needs the documents"):
        ScalePODCallback(coherence=True, field=False)
