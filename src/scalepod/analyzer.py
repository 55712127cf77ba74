"""A checkpoint analysed as the callback would have analysed it during the training: no loop, no logger, one device."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from tqdm import tqdm  # type: ignore[import-untyped]

from .callbacks import ScalePODCallback
from .callbacks.documents import batch_size
from .callbacks.forward import default_forward
from .checkpoint import read_checkpoint, vocabulary_of


class Analyzer(Trainer):
    """Brings a model onto the device, in the trainer's precision, and has a callback analyse it.

    The numbers are those of the live callback: what can change a bit of them, documents, batches, precision and
    device, is the same. It takes the arguments of a Trainer.
    """

    def analyze(
        self,
        model: LightningModule,
        callback: ScalePODCallback,
        ckpt_path: str | Path | None = None,
        datamodule: LightningDataModule | None = None,
    ) -> int:
        """Analyse the attention of a model; the results are in the callback.

        Args:
            model: The model.
            callback: Says what to analyse, and how.
            ckpt_path: Checkpoint with the weights; None for the model as it is.
            datamodule: Validation data; None for those of the model.

        Returns:
            Optimizer steps taken by the model.

        Raises:
            FileNotFoundError: If there is no checkpoint.
            ValueError: If the checkpoint is not of this model, or of data with other characters.
        """
        checkpoint = {} if ckpt_path is None else read_checkpoint(ckpt_path)
        self.strategy.connect(model)
        self.strategy.setup_environment()
        self._data_connector.attach_data(model, datamodule=datamodule)  # the callback finds the validation data there
        _set_up(model, datamodule, checkpoint)
        with self.init_module():
            model.configure_model()
        if ckpt_path is not None:
            _load_weights(model, checkpoint, ckpt_path)
        self.precision_plugin.convert_module(model)
        self.strategy.model_to_device()
        callback.setup(self, model, "validate")
        with _progress(callback, shown=self.progress_bar_callback is not None):
            callback.analyse(self, model)
        return int(checkpoint.get("global_step", 0))


def _set_up(model: LightningModule, datamodule: LightningDataModule | None, checkpoint: dict[str, Any]) -> None:
    """Prepare data and model as a fit does."""
    if datamodule is not None:
        datamodule.prepare_data()
        datamodule.setup("fit")
        _check_vocabulary(datamodule, checkpoint)
        if state := checkpoint.get(type(datamodule).__qualname__):
            datamodule.load_state_dict(state)
    model.prepare_data()
    model.setup("fit")


def _load_weights(model: LightningModule, checkpoint: dict[str, Any], path: str | Path) -> None:
    model.on_load_checkpoint(checkpoint)
    try:
        model.load_state_dict(checkpoint["state_dict"], strict=model.strict_loading)
    except RuntimeError as error:
        raise ValueError(
            f"the weights in {path} are not those of this {type(model).__name__}: {error}\nGive --config of the run "
            "that wrote it, or --model with the options it was trained with"
        ) from error


def _check_vocabulary(datamodule: LightningDataModule, checkpoint: dict[str, Any]) -> None:
    """Refuse data whose tokens stand for other characters than those of the training."""
    trained, given = vocabulary_of(checkpoint), getattr(datamodule, "vocabulary", None)
    if trained is not None and given is not None and given != trained:
        others = sorted(set(given) ^ set(trained))
        raise ValueError(
            f"the model was trained on {len(trained)} characters, and the data have {len(given)}, so that a token "
            f"stands for another character; not in both: {' '.join(map(repr, others[:20]))}. Analyse it on text "
            "with the characters of its training"
        )


@contextlib.contextmanager
def _progress(callback: ScalePODCallback, *, shown: bool) -> Iterator[None]:
    """Count the documents that the model has seen, on standard error where that is a terminal."""
    given = callback.forward_fn
    forward = given or default_forward
    # disable=None: on a terminal alone
    with tqdm(desc="documents", unit="", disable=None if shown else True, leave=False) as bar:

        def counted(module: LightningModule, batch: Any) -> Any:
            result = forward(module, batch)
            bar.total = callback.n_documents
            bar.update(min(batch_size(batch), bar.total - bar.n))
            return result

        callback.forward_fn = counted
        try:
            yield
        finally:
            callback.forward_fn = given
