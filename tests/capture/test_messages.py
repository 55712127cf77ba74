"""What cannot be captured, or looks odd, is said: with the layer, and with the way out."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scalepod.capture import NoAttentionFound, capture_attention

B, H, T, D = 2, 3, 5, 4


class Layer(nn.Module):
    """Calls a function of q, k, v, all the same."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x, x, x)


class Chain(nn.Sequential):
    """Layers after each other."""


@torch.library.custom_op("scalepod_tests::flash_kernel", mutates_args=())
def flash_kernel(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def sealed(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flash_kernel(q, k, v, 0.3)


def sealed_packet(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.ops.scalepod_tests.flash_kernel(q, k, v, 0.3)


KERNEL = "scalepod_tests::flash_kernel"


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, H, T, D, generator=torch.Generator().manual_seed(0))


def test_no_attention_at_all(run: Any) -> None:
    record = run(nn.Linear(D, D), torch.zeros(B, T, D))
    assert record.result(strict=False) == {}
    with pytest.raises(
        NoAttentionFound, match=r"^no attention probabilities were seen.*sdpa|eager.*adapter.*AttentionProbe"
    ):
        record.result()


@pytest.mark.parametrize("function", [sealed, sealed_packet])
def test_opaque_kernels_are_named_with_their_layers(run: Any, x: Tensor, function: Any) -> None:
    record = run(Chain(Layer(function), Layer(function)), x)
    assert record.opaque == {KERNEL: ["0", "1"]}
    assert record.notes == [f"the kernel {KERNEL} cannot be looked into; it was called by 0, 1"]
    with pytest.raises(NoAttentionFound, match=f"{KERNEL} cannot be looked into; it was called by 0, 1"):
        record.result()


def as_sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float) -> dict[str, Any]:
    return {"query": q, "key": k, "is_causal": True, "scale": scale}


def as_probabilities(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return (q @ k.mT * scale).masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)


@pytest.mark.parametrize("function", [sealed, sealed_packet])
@pytest.mark.parametrize("adapter", [as_sdpa, as_probabilities])
def test_an_adapter_reads_the_arguments_of_a_kernel(
    run: Any, close: Any, x: Tensor, adapter: Any, function: Any
) -> None:
    record = run(Layer(function), x, options={"adapters": {KERNEL: adapter}})
    assert record.source == {"Layer": "adapter"}
    assert record.notes == []
    weights = (x.double() @ x.double().mT * 0.3).exp().tril()
    close(record.result()["Layer"], (weights / weights.sum(-1, keepdim=True)).mean(1))


def test_an_adapter_that_fails_is_noted(run: Any, x: Tensor) -> None:
    record = run(Layer(sealed), x, options={"adapters": {KERNEL: lambda *args: {"query": args[0]}}})
    assert record.notes[0].startswith("Layer: the adapter attention could not be computed (TypeError: ")


def test_a_partial_capture(run: Any, x: Tensor) -> None:
    def silent(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q

    sdpa = F.scaled_dot_product_attention
    record = run(Chain(Layer(sdpa), Layer(silent), Layer(sealed), Layer(sdpa)), x)
    assert list(record.result()) == ["0", "3"]
    assert record.notes == [
        f"the kernel {KERNEL} cannot be looked into; it was called by 2",
        "2 of 4 layers like 0 were captured; of 1, 2 nothing was seen",
    ]


def test_layers_of_another_kind_are_not_missing(run: Any, x: Tensor) -> None:
    sdpa = F.scaled_dot_product_attention
    assert run(Chain(Layer(sdpa), nn.Identity(), Layer(sdpa)), x).notes == []


def test_layers_that_were_left_out_on_purpose_are_not_missing(run: Any, x: Tensor) -> None:
    sdpa = F.scaled_dot_product_attention
    assert run(Chain(Layer(sdpa), Layer(sdpa)), x, options={"include": "0"}).notes == []


def test_everything_left_out(run: Any, x: Tensor) -> None:
    record = run(Chain(Layer(F.scaled_dot_product_attention)), x, options={"include": "layers.*"})
    with pytest.raises(NoAttentionFound, match="Attention was seen but left out in: 0"):
        record.result()


def test_padding_that_the_batch_does_not_speak_of(run: Any, x: Tensor) -> None:
    keep = torch.ones(B, 1, 1, T, dtype=torch.bool)
    keep[1, ..., 3:] = False
    layer = Layer(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=keep))
    assert run(layer, x).notes == [
        "Layer: 1 of 2 samples look padded (tokens that see or are seen by nobody), "
        "but which tokens are padding is not known: give the mask of the batch, unless the attention is sparse"
    ]
    assert run(layer, x, options={"batch": {"attention_mask": keep[:, 0, 0]}}).notes == []


def test_rows_that_do_not_sum_to_one(run: Any, x: Tensor) -> None:
    record = run(Layer(lambda q, k, v: ((q @ k.mT).softmax(-1) * 0.5) @ v), x)
    assert record.notes == ["Layer: rows do not sum to one (sums from 0.5 to 0.5: a gate, a sink, or not a softmax)"]


def test_negative_weights(run: Any, x: Tensor) -> None:
    def differential(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (2 * (q @ k.mT).softmax(-1) - (k @ q.mT * 0.1).softmax(-1)) @ v

    assert run(Layer(differential), x).notes == ["Layer: has negative weights"]


def test_a_batch_of_another_size(run: Any, x: Tensor) -> None:
    record = run(Layer(F.scaled_dot_product_attention), x, options={"batch_size": 7})
    assert record.notes == ["Layer: 2 maps for a batch of 7 (windows, or one sample at a time?)"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules() -> None:
    class Scripted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    model = Chain(torch.jit.script(Scripted()))
    with torch.no_grad(), capture_attention(model) as record:
        model(torch.zeros(B, T, D))
    with pytest.raises(NoAttentionFound, match="Scripted modules cannot be looked into: 0"):
        record.result()


def test_other_threads_are_not_seen(x: Tensor) -> None:
    model = Layer(F.scaled_dot_product_attention)
    with capture_attention(model) as record, ThreadPoolExecutor(1) as pool:
        pool.submit(model, x).result()
    with pytest.raises(NoAttentionFound, match=r"nn\.DataParallel \(other threads are not seen\)"):
        record.result()


def test_a_softmax_that_never_meets_values(run: Any, x: Tensor) -> None:
    with pytest.raises(NoAttentionFound, match="A softmax was seen in Layer, but no product of it with values"):
        run(Layer(lambda q, k, v: (q @ k.mT).softmax(-1).argmax(-1)), x).result()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_vmap_and_nested_tensors(run: Any, x: Tensor) -> None:
    record = run(Layer(torch.vmap(F.scaled_dot_product_attention)), x)
    assert record.notes == ["Layer: it was computed under torch.func.vmap, where the samples cannot be told apart"]
    nested = torch.nested.nested_tensor([x[0].transpose(0, 1), x[1].transpose(0, 1)[:3]], layout=torch.jagged)
    with torch.no_grad(), capture_attention(model := Layer(F.scaled_dot_product_attention)) as record:
        model(nested.transpose(1, 2))
    assert record.notes == ["Layer: nested tensors are not supported; give padded ones and a mask"]


def test_a_wrong_choice_of_heads() -> None:
    with (
        pytest.raises(ValueError, match='heads must be "mean" or "each", got \'all\''),
        capture_attention(nn.Identity(), heads="all"),
    ):
        pass
