"""Command lines that take seconds: shared by the tests of the commands and their configurations."""

from scalepod.training_cli import TrainingCLI

ENVIRONMENT = {
    # seed_everything leaves these behind; set beforehand, they go with the test
    "PL_GLOBAL_SEED": "0",
    "PL_SEED_WORKERS": "0",
    # what is deprecated is called by LightningCLI, not by us
    "JSONARGPARSE_DEPRECATION_WARNINGS": "off",
}
"""Variables under which a test runs a command."""

SMALL = [
    "--data.path=text.txt",
    "--data.block_size=16",
    "--data.batch_size=4",
    "--model.n_layer=1",
    "--model.n_head=2",
    "--model.n_embd=16",
    "--trainer.accelerator=cpu",
    "--trainer.max_steps=2",
    "--trainer.val_check_interval=1",
    "--trainer.limit_val_batches=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.enable_model_summary=false",
]
"""What makes a shipped configuration a matter of seconds; the text is the one that every test here has beside it."""

SMALL_CALLBACK = ["--trainer.callbacks.n_snapshots=4", "--trainer.callbacks.images=false"]
"""The same for its ScalePODCallback."""

NO_LOGGER = "--trainer.logger=false"

BARE = [*SMALL[6:], NO_LOGGER, "--trainer.enable_checkpointing=false"]
"""A trainer of two steps that writes nothing, for models and data of any kind."""


def run(*words: str | list[str]) -> TrainingCLI:
    """Run a command line given as words and lists of words."""
    return TrainingCLI([word for part in words for word in ([part] if isinstance(part, str) else part)])
