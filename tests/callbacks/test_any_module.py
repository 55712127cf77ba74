"""Batches and models of all shapes go through the callback, with the numbers of the plain computation."""

from dataclasses import dataclass

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from tiny import TOKENS, VOCABULARY, WIDTH, TinyModule, tiny_loader, tiny_trainer
from torch import nn
from torch.utils.data import DataLoader

from scalepod import ScalePOD
from scalepod.callbacks import ScalePODCallback, ScalePODWarning


def watched(tmp_path, model, held_out, train=None, **options):
    precision = options.pop("precision", "32-true")
    options = {"every_n_steps": None, "images": False, "on_error": "raise", "n_snapshots": 16, **options}
    callback = ScalePODCallback(dataloader=held_out, **options)
    trainer = tiny_trainer(tmp_path, max_steps=1, callbacks=[callback], precision=precision)
    trainer.fit(model, tiny_loader() if train is None else train)
    return callback


class Masked(TinyModule):
    """Takes named inputs, and leaves padded tokens out; keeps the attention it computed for comparison."""

    def forward(self, input_ids, attention_mask=None):
        x = self.embed(input_ids)
        causal = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
        mask = causal if attention_mask is None else causal & attention_mask[:, None, None, :].bool()
        for layer in self.layers:
            q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in layer.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + layer.out(y.transpose(1, 2).flatten(-2))
        return self.head(x)

    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)  # the weights stay, so that maps can be compared


def pad(documents, side):
    longest = max(len(document) for document in documents)
    rows, masks = [], []
    for document in documents:
        lacking = (longest - len(document), 0) if side == "left" else (0, longest - len(document))
        rows.append(F.pad(document, lacking))
        masks.append(F.pad(torch.ones_like(document), lacking))
    return {"input_ids": torch.stack(rows), "attention_mask": torch.stack(masks)}


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_and_lengths_that_differ_from_batch_to_batch(tmp_path, side):
    generator = torch.Generator().manual_seed(0)
    documents = [torch.randint(1, VOCABULARY, (5 + 3 * (i % 4),), generator=generator) for i in range(12)]
    loader = DataLoader(documents, batch_size=3, collate_fn=lambda group: pad(group, side))
    model = Masked()
    callback = watched(tmp_path, model, loader)
    plain = [ScalePOD(), ScalePOD()]
    with torch.no_grad():
        for document in documents:
            x = model.embed(document[None])
            for monitor, layer in zip(plain, model.layers, strict=True):
                q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in layer.qkv(x).chunk(3, -1))
                scores = (q @ k.mT) / k.size(-1) ** 0.5
                attn = scores.masked_fill(~torch.ones_like(scores).tril().bool(), -torch.inf).softmax(-1)
                monitor.update(attn.mean(1))
                x = x + layer.out((attn @ v).transpose(1, 2).flatten(-2))
    for analysis, monitor in zip(callback.analyses.values(), plain, strict=True):
        expected = monitor.compute()
        assert analysis.n_queries == expected.n_queries
        assert analysis.energy == pytest.approx(expected.energy, rel=1e-5)
        torch.testing.assert_close(analysis.scalogram, expected.scalogram, rtol=1e-4, atol=1e-9)


@dataclass
class Batch:
    input_ids: torch.Tensor
    attention_mask: torch.Tensor


@pytest.mark.parametrize("kind", ["tensor", "tuple", "dict", "dataclass", "list of batches"])
def test_every_kind_of_batch_gives_the_same(tmp_path, kind):
    tokens = torch.randint(1, VOCABULARY, (16, TOKENS), generator=torch.Generator().manual_seed(0))
    ones = torch.ones_like(tokens)
    batch = {
        "tensor": tokens,
        "tuple": [(tokens, ones)],
        "dict": {"input_ids": tokens, "attention_mask": ones},
        "dataclass": Batch(tokens, ones),
        "list of batches": [tokens[:10], tokens[10:]],
    }[kind]
    torch.manual_seed(0)
    model = Masked()
    energies = [a.energy for a in watched(tmp_path, model, batch).analyses.values()]
    expected = [a.energy for a in watched(tmp_path, model, tokens).analyses.values()]
    assert energies == pytest.approx(expected, rel=1e-6)


class Augments(Masked):
    """Changes the batch while training, and its input in place."""

    def on_after_batch_transfer(self, batch, dataloader_idx):
        return (batch[0].flip(1), *batch[1:]) if self.trainer.training else batch

    def forward(self, input_ids):
        found = super().forward(input_ids.clone())
        input_ids.zero_()
        return found


def test_the_documents_are_the_same_at_every_firing_and_not_augmented(tmp_path):
    tokens = torch.randint(1, VOCABULARY, (6, TOKENS), generator=torch.Generator().manual_seed(0))
    given, seen = tokens.clone(), []

    def forward(module, batch):
        seen.append(batch[0].clone())
        return module(batch[0])

    watched(tmp_path, Augments(), [(given, given)], forward_fn=forward)
    assert len(seen) == 2
    assert all(torch.equal(document, tokens) for document in seen)
    assert torch.equal(given, tokens)


def test_every_head_as_a_layer_of_its_own(tmp_path):
    callback = watched(tmp_path, TinyModule(), tiny_loader(seed=1), heads="each")
    assert list(callback.analyses) == ["01_layers.0/h0", "02_layers.0/h1", "03_layers.1/h0", "04_layers.1/h1"]


def test_include_and_exclude(tmp_path):
    assert list(watched(tmp_path, TinyModule(), tiny_loader(), include="*.1").analyses) == ["01_layers.1"]
    assert list(watched(tmp_path, TinyModule(), tiny_loader(), exclude=["layers.1"]).analyses) == ["01_layers.0"]


class Translator(TinyModule):
    """Decoder layers with cross attention to a shorter memory."""

    def __init__(self):
        super().__init__(n_layers=0)
        self.decoder = nn.TransformerDecoderLayer(WIDTH, 2, 16, batch_first=True)

    def forward(self, idx):
        x = self.embed(idx)
        causal = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
        return self.head(self.decoder(x, x[:, :5], tgt_mask=causal))


def test_cross_attention_is_left_out_with_a_word(tmp_path):
    with pytest.warns(ScalePODWarning, match=r"decoder.multihead_attn: attention of 12 x 5 is not square"):
        callback = watched(tmp_path, Translator(), tiny_loader(seed=1))
    assert list(callback.analyses) == ["01_decoder.self_attn"]


def test_bidirectional_attention_has_signed_lags(tmp_path):
    class Encoder(TinyModule):
        def __init__(self):
            super().__init__(n_layers=0)
            self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)

        def forward(self, idx):
            return self.head(self.encoder(self.embed(idx)))

    callback = watched(tmp_path, Encoder(), tiny_loader(seed=1), images=True)
    (analysis,) = callback.analyses.values()
    assert analysis.signed
    assert analysis.lag_energy.shape == (2 * TOKENS - 1,)
    assert float(analysis.lag_energy[: TOKENS - 1].sum()) > 0  # keys ahead of the query


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_t_spec_in_half_precision_is_near_that_in_single(tmp_path, precision):
    torch.manual_seed(0)
    model = TinyModule()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    loader = tiny_loader(n=60, seed=1)

    def t_spec(precision):
        model.load_state_dict(state)
        callback = ScalePODCallback(every_n_steps=None, n_snapshots=60, images=False, dataloader=loader)
        seen = {}
        callback._report = lambda trainer, started, step, x: seen.setdefault(step, dict(callback.analyses))
        trainer = tiny_trainer(tmp_path, max_steps=1, callbacks=[callback], precision=precision)
        trainer.fit(model.float(), tiny_loader())
        return [value for a in seen[0].values() for value in (a.t_spec, a.lag_t_spec)]

    assert t_spec(precision) == pytest.approx(t_spec("32-true"), rel=0.05)


class Compiled(TinyModule):
    def __init__(self, how):
        super().__init__()
        if how == "submodule":
            self.layers[0] = torch.compile(self.layers[0], backend="eager")
        if how == "module.compile()":
            for layer in self.layers:
                layer.compile(backend="eager")
        if how == "forward":
            self.forward = torch.compile(self.forward, backend="eager")


@pytest.mark.parametrize("how", ["submodule", "module.compile()", "forward"])
def test_compiled_parts(tmp_path, how):
    callback = watched(tmp_path, Compiled(how), tiny_loader(seed=1))
    assert list(callback.analyses) == ["01_layers.0", "02_layers.1"]


class Steps(L.LightningModule):
    """Has no forward and no data of its own: only a validation step that logs, counts and collects."""

    def __init__(self):
        super().__init__()
        self.inner = Masked()
        self.collected = []

    def training_step(self, batch, batch_idx):
        return self.inner(batch[0]).sum()

    def validation_step(self, batch, batch_idx):
        self.collected.append(batch_idx)
        self.log("val_loss", self.inner(**batch).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_a_module_with_only_a_validation_step(tmp_path):
    model = Steps()
    tokens = torch.randint(VOCABULARY, (16, TOKENS))
    callback = watched(tmp_path, model, {"input_ids": tokens})
    assert list(callback.analyses) == ["01_inner#0", "02_inner#1"]
    assert model.collected == []


@torch.library.custom_op("scalepod_tests::attention", mutates_args=())
def sealed_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Sealed(TinyModule):
    """Attention in a kernel that nothing can look into."""

    def forward(self, idx):
        x = self.embed(idx)
        heads = x.detach()[:, None]
        return self.head(x + sealed_attention(heads, heads, heads)[:, 0])


def test_a_custom_kernel_is_named_and_an_adapter_opens_it(tmp_path):
    with pytest.warns(
        ScalePODWarning, match="scalepod_tests::attention cannot be looked into; it was called by Sealed"
    ):
        watched(tmp_path, Sealed(), tiny_loader(seed=1), on_error="warn")
    adapters = {"scalepod_tests::attention": lambda q, k, v: {"query": q, "key": k, "is_causal": True}}
    callback = watched(tmp_path, Sealed(), tiny_loader(seed=1), adapters=adapters)
    assert list(callback.analyses) == ["01_Sealed"]
    assert not callback.analyses["01_Sealed"].signed
