"""Hugging Face models, as they come and in every implementation, against their own float64 eager computation.

The models are small and random; nothing is downloaded. The reference is the ``output_attentions`` of a float64 copy in
the eager implementation, which is the one place where the library gives the probabilities.
"""

import copy
import os
import warnings
from collections.abc import Iterator
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from torch import Tensor

from scalepod.capture import NoAttentionFound, capture_attention

transformers = pytest.importorskip("transformers")

B, T = 2, 12
SMALL: dict[str, Any] = {"vocab_size": 20, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
DECODER: dict[str, Any] = SMALL | {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def gpt2() -> Any:
    config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=16, n_positions=T, **SMALL)
    return transformers.GPT2LMHeadModel, config


def gpt_neox() -> Any:
    return transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig(max_position_embeddings=T, **DECODER)


def opt() -> Any:
    config = transformers.OPTConfig(
        hidden_size=16, ffn_dim=32, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=16, **SMALL
    )
    return transformers.OPTForCausalLM, config


def llama() -> Any:
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(num_key_value_heads=2, **DECODER)


def qwen2() -> Any:
    return transformers.Qwen2ForCausalLM, transformers.Qwen2Config(num_key_value_heads=2, **DECODER)


def mistral() -> Any:
    config = transformers.MistralConfig(num_key_value_heads=2, sliding_window=4, **DECODER)
    return transformers.MistralForCausalLM, config


def bert() -> Any:
    return transformers.BertForMaskedLM, transformers.BertConfig(**DECODER)


def gpt_oss() -> Any:
    config = transformers.GptOssConfig(
        num_key_value_heads=2, head_dim=8, num_local_experts=2, num_experts_per_tok=1, sliding_window=4, **DECODER
    )
    return transformers.GptOssForCausalLM, config


MODELS = [gpt2, gpt_neox, opt, llama, qwen2, mistral, bert]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    transformers.logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        yield


def build(kind: Any, implementation: str | None = None) -> Any:
    """A model, spread out at random so that its attention is far from uniform."""
    torch.manual_seed(0)
    cls, config = kind()
    model = cls._from_config(config, **({} if implementation is None else {"attn_implementation": implementation}))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def eager_float64(model: Any, **batch: Any) -> list[Tensor]:
    """Head-averaged maps of every layer."""
    double = copy.deepcopy(model).double()
    double.set_attn_implementation("eager")
    if hasattr(double, "set_experts_implementation"):
        double.set_experts_implementation("eager")  # grouped products know no float64
    with torch.no_grad():
        out = double(**batch, output_attentions=True)
    return [attention.mean(1) for attention in out.attentions]


def tokens() -> Tensor:
    return torch.randint(3, 20, (B, T), generator=torch.Generator().manual_seed(1))


IMPLEMENTATIONS = [
    (kind, implementation)
    for kind in MODELS
    for implementation in (None, "eager", "flex_attention")
    if (kind, implementation) != (gpt2, "flex_attention")  # which it does not offer
]


@pytest.mark.parametrize(
    ("kind", "implementation"), IMPLEMENTATIONS, ids=lambda value: getattr(value, "__name__", value)
)
def test_models_in_every_implementation(run: Any, close: Any, kind: Any, implementation: str | None) -> None:
    model = build(kind, implementation)
    used = model.config._attn_implementation
    record = run(model, input_ids=tokens(), options={"batch_size": B})
    assert set(record.source.values()) == {{"sdpa": "sdpa", "eager": "softmax", "flex_attention": "flex"}[used]}
    assert record.notes == []
    for found, expected in zip(record.result().values(), eager_float64(model, input_ids=tokens()), strict=True):
        close(found, expected)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager", "flex_attention"])
@pytest.mark.parametrize("kind", [llama, bert, mistral], ids=lambda kind: kind.__name__)
def test_padding_on_either_side(run: Any, close: Any, kind: Any, implementation: str, side: str) -> None:
    model = build(kind, implementation)
    mask = torch.ones(B, T, dtype=torch.long)
    mask[1, slice(0, 5) if side == "left" else slice(T - 5, T)] = 0
    batch = {"input_ids": tokens(), "attention_mask": mask}
    record = run(model, **batch, options={"batch": batch})
    assert record.notes == []
    for sample, real in enumerate(mask.bool()):  # against each sample without its padding
        at = real.nonzero().T
        alone = eager_float64(model, input_ids=tokens()[sample, at], position_ids=at)
        for found, expected in zip(record.result().values(), alone, strict=True):
            rows = found[sample, real]  # what padded queries do is each kernel's own
            close(rows[:, real], expected[0])
            assert bool((rows[:, ~real] == 0).all())
    if implementation == "sdpa":
        assert any("look padded" in note for note in run(model, **batch).notes)


def test_sinks(run: Any, close: Any) -> None:
    model = build(gpt_oss)
    torch.nn.init.normal_(model.model.layers[0].self_attn.sinks)
    record = run(model, input_ids=tokens())
    for found, expected in zip(record.result().values(), eager_float64(model, input_ids=tokens()), strict=True):
        close(found, expected)
    assert any("rows do not sum to one" in note for note in record.notes)


def test_sinks_under_flex_attention_are_out_of_sight_and_switched_away() -> None:
    """There the library applies the sink to the output, after the kernel; on a CPU it cannot run at all."""
    model = build(gpt_oss, "flex_attention")
    with capture_attention(model) as record:
        assert model.config._attn_implementation == "eager"
    assert model.config._attn_implementation == "flex_attention"
    assert "'flex_attention' switched to 'eager'" in record.notes[0]


def test_t5_encoder_and_decoder(run: Any, close: Any) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0, **SMALL
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    batch = {"input_ids": tokens(), "decoder_input_ids": tokens()[:, :7]}
    record = run(model, **batch)
    double = copy.deepcopy(model).double()
    double.set_attn_implementation("eager")
    with torch.no_grad():
        out = double(**batch, output_attentions=True)
    expected = [*out.encoder_attentions, *out.decoder_attentions]
    assert len(record.result()) == 4
    for found, reference in zip(record.result().values(), expected, strict=True):
        close(found, reference.mean(1))
    assert len(record.notes) == 2
    assert all("EncDecAttention: attention of 7 x 12 is not square" in note for note in record.notes)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_vit(run: Any, close: Any, implementation: str) -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, image_size=8, patch_size=2
    )
    model = transformers.ViTModel._from_config(config, attn_implementation=implementation).eval()
    images = torch.randn(B, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    record = run(model, pixel_values=images)
    reference = eager_float64(model, pixel_values=images.double())
    for found, expected in zip(record.result().values(), reference, strict=True):
        close(found, expected)


def test_output_attentions_is_not_needed_and_does_no_harm(run: Any, close: Any) -> None:
    model = build(llama, "eager")
    record = run(model, input_ids=tokens(), output_attentions=True)
    for found, expected in zip(record.result().values(), eager_float64(model, input_ids=tokens()), strict=True):
        close(found, expected)


# ---------------------------------------------------------------------- implementations that a user registered


@torch.library.custom_op("scalepod_tests::sealed_attention", mutates_args=())
def sealed_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """A kernel that gives nothing but the mixed values."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def sealed(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **kwargs: Any) -> Any:
    repeats = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(repeats, 1) for x in (key, value))
    return sealed_attention(query, key, value, scaling).transpose(1, 2).contiguous(), None


def sharpened(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **kwargs: Any) -> Any:
    repeats = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(repeats, 1) for x in (key, value))
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=2 * scaling)
    return out.transpose(1, 2).contiguous(), None


def registered(name: str, function: Any) -> Any:
    transformers.AttentionInterface.register(name, function)
    model = build(llama)
    model.set_attn_implementation(name)
    return model


def test_an_opaque_implementation_is_switched_and_put_back(close: Any) -> None:
    model = registered("sealed", sealed)
    config = model.config
    with torch.no_grad(), capture_attention(model) as record:
        assert config._attn_implementation == "sdpa"
        model(input_ids=tokens())
    assert config._attn_implementation == "sealed"
    assert record.notes == ["LlamaForCausalLM: attention implementation 'sealed' switched to 'sdpa' for the capture"]
    for found, expected in zip(record.result().values(), eager_float64(model, input_ids=tokens()), strict=True):
        close(found, expected)
    with pytest.raises(RuntimeError, match="on purpose"), capture_attention(model):
        raise RuntimeError("on purpose")
    assert config._attn_implementation == "sealed"


def test_an_implementation_that_can_be_looked_into_is_kept(run: Any, close: Any) -> None:
    """Its maps are its own: they are twice as sharp as those of the library."""
    model = registered("sharpened", sharpened)
    record = run(model, input_ids=tokens())
    assert record.notes == []
    for layer in model.model.layers:
        layer.self_attn.scaling *= 2
    expected = eager_float64(model, input_ids=tokens())
    for found, reference in zip(record.result().values(), expected, strict=True):
        close(found, reference)


def test_a_switch_that_is_refused_is_noted() -> None:
    model = registered("sealed", sealed)
    model.set_attn_implementation = model.model.set_attn_implementation = lambda name: None
    with torch.no_grad(), capture_attention(model) as record:
        model(input_ids=tokens())
    kernel = "scalepod_tests::sealed_attention"
    assert record.opaque == {kernel: ["model.layers.0.self_attn", "model.layers.1.self_attn"]}
    assert "implementation 'sealed' can neither be looked into nor be switched" in record.notes[0]
    with pytest.raises(NoAttentionFound, match=rf"{kernel} cannot be looked into.*model\.layers\.0\.self_attn"):
        record.result()
