"""The LightningModules in a real Trainer."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from lightning import LightningModule, Trainer, seed_everything
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from scalepod.models import GPT, BaselineGPT, EnergyGatedGPT, GPTConfig

pytestmark = [  # Lightning's own, about set-ups that are meant here
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]

SMALL = {"vocab_size": 13, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16}
MODULES = [
    (BaselineGPT, {}),
    (EnergyGatedGPT, {}),
    (EnergyGatedGPT, {"n_scales": 2, "normalization": "sequence"}),
]


def batches(n_rows: int = 10, batch_size: int = 4, shuffle: bool = False) -> DataLoader:
    text = torch.randint(13, (n_rows, 9), generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(text[:, :-1], text[:, 1:]), batch_size=batch_size, shuffle=shuffle)


def trainer(folder: Path, **options: object) -> Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return Trainer(**{"default_root_dir": folder, "max_steps": 4, "enable_checkpointing": False, **quiet, **options})


class Recorder(LightningModule):
    """Mixed into a module: keeps the loss and learning rate of every step."""

    def on_train_start(self) -> None:
        self.losses: list[float] = []
        self.rates: list[float] = []

    def on_train_batch_end(self, outputs: dict[str, Tensor], batch: object, batch_idx: int) -> None:
        self.losses.append(outputs["loss"].item())

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])


class RecordedBaseline(Recorder, BaselineGPT):
    pass


class RecordedEnergyGated(Recorder, EnergyGatedGPT):
    pass


@pytest.mark.parametrize(("module_class", "options"), MODULES)
def test_a_checkpoint_brings_back_the_model_and_its_arguments(tmp_path, module_class, options):
    module = module_class(**SMALL, **options, dropout=0.2, learning_rate=1e-2, betas=(0.8, 0.9))
    run = trainer(tmp_path)
    run.fit(module, batches())
    run.save_checkpoint(tmp_path / "last.ckpt")
    loaded = module_class.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    idx = torch.randint(13, (2, 8))
    assert torch.equal(loaded.eval()(idx), module.eval()(idx))
    assert dict(loaded.hparams) == dict(module.hparams)
    assert loaded.model.config == module.model.config
    assert not torch.equal(module(idx), module_class(**SMALL, **options).eval()(idx))


def test_hyperparameters_are_the_arguments_given_and_the_defaults():
    module = EnergyGatedGPT(13, 8, n_embd=16, learning_rate=1e-3)
    assert dict(module.hparams) == {
        "vocab_size": 13,
        "block_size": 8,
        "n_layer": 6,
        "n_head": 8,
        "n_embd": 16,
        "dropout": 0.1,
        "positions": "learned",
        "n_scales": 1,
        "normalization": "causal",
        "learning_rate": 1e-3,
        "min_learning_rate": 3e-5,
        "warmup_steps": 100,
        "decay_steps": None,
        "weight_decay": 0.1,
        "betas": (0.9, 0.95),
    }


def test_arguments_reach_the_model():
    shape = {"n_layer": 1, "n_head": 3, "n_embd": 12, "dropout": 0.3, "positions": "learned"}
    gate = {"n_scales": 2, "normalization": "sequence"}
    assert BaselineGPT(13, 8, **shape).model.config == GPTConfig(13, 8, **shape)
    gated = EnergyGatedGPT(13, 8, **shape, **gate)
    assert gated.model.config == GPTConfig(13, 8, **shape, attention="energy_gated", **gate)


def test_options_reach_the_optimiser(tmp_path):
    module = BaselineGPT(**SMALL, learning_rate=0.5, warmup_steps=0, betas=(0.7, 0.8), weight_decay=0.3)
    run = trainer(tmp_path)
    run.fit(module, batches(16))
    matrices, others = run.optimizers[0].param_groups
    assert isinstance(run.optimizers[0], torch.optim.AdamW)
    assert matrices["initial_lr"] == others["initial_lr"] == 0.5
    assert matrices["betas"] == others["betas"] == (0.7, 0.8)
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.3, 0.0)


@pytest.mark.parametrize("stage", ["val", "test"])
def test_metrics_are_means_over_tokens_not_over_batches(tmp_path, stage):
    torch.manual_seed(0)
    module = EnergyGatedGPT(**SMALL)
    with torch.no_grad():
        module.model.embedding.weight.mul_(30)  # losses that differ between batches
    run = trainer(tmp_path)
    (logged,) = (run.validate if stage == "val" else run.test)(module, batches(), verbose=False)

    x, y = batches().dataset.tensors
    loss = F.cross_entropy(module.eval()(x).double().flatten(0, 1), y.flatten()).item()
    by_batch = [F.cross_entropy(module(x).flatten(0, 1), y.flatten()).item() for x, y in batches()]
    assert abs(sum(by_batch) / 3 - loss) > 0.01
    assert set(logged) == {f"{stage}_loss", f"{stage}_perplexity", f"{stage}_bpc"}
    assert logged[f"{stage}_loss"] == pytest.approx(loss, rel=1e-5)
    assert logged[f"{stage}_perplexity"] == pytest.approx(math.exp(logged[f"{stage}_loss"]), rel=1e-6)
    assert logged[f"{stage}_bpc"] == pytest.approx(logged[f"{stage}_loss"] / math.log(2), rel=1e-6)


def test_a_diverged_model_does_not_look_healthy(tmp_path):
    module = BaselineGPT(**SMALL)
    module.model.register_forward_hook(lambda model, args, logits: logits * (math.nan if len(logits) == 2 else 1))
    (logged,) = trainer(tmp_path).validate(module, batches(), verbose=False)  # NaN in the last batch only
    assert math.isnan(logged["val_loss"])


def test_training_and_validation_reach_the_callbacks(tmp_path):
    run = trainer(tmp_path, max_steps=3, max_epochs=1)
    run.fit(BaselineGPT(**SMALL), batches(), batches())
    assert set(run.callback_metrics) == {"train_loss", "val_loss", "val_perplexity", "val_bpc"}


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_learning_rate_follows_optimiser_steps(tmp_path, accumulate):
    module = RecordedBaseline(**SMALL, learning_rate=1e-2, min_learning_rate=1e-3, warmup_steps=2)
    trainer(tmp_path, max_steps=6, accumulate_grad_batches=accumulate).fit(module, batches(12))
    cosine = [1e-3 + 9e-3 * (1 + math.cos(math.pi * n / 4)) / 2 for n in (1, 2, 3, 4)]
    assert module.rates == pytest.approx([5e-3, 1e-2, *cosine])


def test_decay_steps_outrank_the_length_of_the_run(tmp_path):
    module = RecordedBaseline(**SMALL, learning_rate=1e-2, min_learning_rate=0.0, warmup_steps=0, decay_steps=2)
    trainer(tmp_path, max_steps=4).fit(module, batches(16))
    assert module.rates == pytest.approx([5e-3, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true", "64-true"])
@pytest.mark.parametrize("module_class", [RecordedBaseline, RecordedEnergyGated])
def test_training_repeats_itself_bit_for_bit_and_learns(tmp_path, module_class, precision):
    runs = []
    for _ in range(2):
        seed_everything(5, verbose=False)
        module = module_class(**SMALL, dropout=0.1, learning_rate=1e-2, warmup_steps=5)
        run = trainer(tmp_path, max_steps=40, precision=precision, gradient_clip_val=1.0)
        run.fit(module, batches(8, shuffle=True))
        runs.append(module)
    first, second = runs
    assert first.losses == second.losses
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    assert first.losses[-1] < first.losses[0] - 0.3


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo's own, which it usually hides
@pytest.mark.parametrize(("module_class", "options"), MODULES)
def test_training_compiled_equals_training_plain(tmp_path, module_class, options):
    states = []
    for compiled in (False, True):
        seed_everything(5, verbose=False)
        module = module_class(**SMALL, **options, dropout=0.0)
        trained = torch.compile(module, backend="eager") if compiled else module
        run = trainer(tmp_path, max_epochs=1)
        run.fit(trained, batches(16), batches())
        states.append({**module.state_dict(), "val_loss": run.callback_metrics["val_loss"]})
    assert list(states[0]) == list(states[1])
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, msg=name)


def test_predictions_are_log_probabilities_of_the_next_tokens(tmp_path):
    module = BaselineGPT(**SMALL)
    predicted = torch.cat(trainer(tmp_path).predict(module, batches()))
    x, y = batches().dataset.tensors
    probabilities = module.eval()(x).softmax(-1)
    for row in range(len(x)):
        for i in range(8):
            assert predicted[row, i].exp().item() == pytest.approx(probabilities[row, i, y[row, i]].item(), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_are_not_rounded_to_half_precision(dtype):
    module = BaselineGPT(**SMALL).to(dtype).eval()
    x, y = batches().dataset.tensors
    predicted = module.predict_step((x, y), 0)
    assert predicted.dtype == torch.float32
    expected = module(x).double().log_softmax(-1).gather(-1, y[..., None])[..., 0]
    torch.testing.assert_close(predicted.double(), expected, rtol=1e-5, atol=0)


def test_forward_is_that_of_the_plain_model():
    module = EnergyGatedGPT(**SMALL, dropout=0.0)
    plain = GPT(GPTConfig(**SMALL, dropout=0.0, attention="energy_gated"))
    plain.load_state_dict(module.model.state_dict())
    idx = torch.randint(13, (2, 8))
    assert torch.equal(module(idx), plain(idx))


def test_every_argument_is_explained_on_the_command_line():
    from lightning.pytorch.cli import LightningArgumentParser

    parser = LightningArgumentParser()
    parser.add_lightning_class_args(EnergyGatedGPT, "model")
    actions = {action.dest: action for action in parser._actions if action.dest.startswith("model.")}
    for name in EnergyGatedGPT(13, 8, n_embd=16).hparams:
        assert actions[f"model.{name}"].help, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0, "min_learning_rate": 0.0}, r"learning_rate > 0, got .*learning_rate=0\.0"),
        ({"learning_rate": 1e-5}, r"min_learning_rate <= learning_rate .* got min_learning_rate=3e-05"),
        ({"warmup_steps": -1}, r"0 <= warmup_steps .* got warmup_steps=-1"),
        ({"decay_steps": 100}, r"warmup_steps < decay_steps .* got warmup_steps=100, decay_steps=100"),
        ({"weight_decay": -0.1}, r"weight_decay must not be negative, got -0\.1"),
        ({"n_head": 3}, r"n_embd must be a multiple of n_head"),
    ],
)
@pytest.mark.parametrize("module_class", [BaselineGPT, EnergyGatedGPT])
def test_a_wrong_option_is_named(module_class, options, message):
    with pytest.raises(ValueError, match=message):
        module_class(**{**SMALL, **options})


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="lr"):
        BaselineGPT(**SMALL, lr=1e-3)


def test_a_run_without_end_needs_decay_steps(tmp_path):
    run = trainer(tmp_path, max_steps=-1, max_epochs=-1)
    with pytest.raises(ValueError, match="set decay_steps, or the Trainer's max_steps"):
        run.fit(BaselineGPT(**SMALL), batches())
