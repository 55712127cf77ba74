"""`scalepod generate`: continue a text with a model out of a checkpoint."""

import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from .checkpoint import PREFIX, is_gated, is_language_model, read_checkpoint, vocabulary_of
from .datamodules.corpus import Corpus, read_text
from .models import GPT, GPTConfig

DESCRIPTION = """Continue a text with a trained model, character by character. The characters it knows are in the
checkpoint; for one that has none, --text names the text of the training."""


def main(args: Sequence[str]) -> int:
    """Print a prompt and its continuation.

    Args:
        args: The arguments behind `generate`.

    Returns:
        Exit status: 0, or 1 when the checkpoint, the prompt or an option were at fault, which has been said on
        standard error.

    Raises:
        SystemExit: With status 2 for arguments that cannot be parsed, 0 after help.
    """
    given = _parser().parse_args(args)
    try:
        checkpoint = read_language_model(given.ckpt_path)
        model, corpus = model_of(checkpoint, given.ckpt_path), corpus_of(checkpoint, given.ckpt_path, given.text)
        prompt = corpus.encode(given.prompt)
        if not len(prompt):
            raise ValueError("the prompt is empty: give at least one character, for example a line end")
        generator = torch.Generator().manual_seed(given.seed)
        (tokens,) = model.generate(prompt[None], given.max_new_tokens, given.temperature, given.top_k, generator)
        print(corpus.decode(tokens))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def read_language_model(path: Path) -> dict[str, Any]:
    """Read a checkpoint of one of scalepod's models onto the CPU.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no checkpoint, or one of another model.
    """
    checkpoint = read_checkpoint(path)
    if not is_language_model(checkpoint):
        raise ValueError(f"{path} is no checkpoint of BaselineGPT or EnergyGatedGPT, which alone can generate text")
    return checkpoint


def model_of(checkpoint: Mapping[str, Any], path: Path) -> GPT:
    """Build the model of a checkpoint, with its weights.

    Raises:
        ValueError: The weights do not fit the hyperparameters.
    """
    weights = {
        name.removeprefix(PREFIX): value for name, value in checkpoint["state_dict"].items() if name.startswith(PREFIX)
    }
    known = {field.name for field in fields(GPTConfig)}
    shape = {name: value for name, value in checkpoint["hyper_parameters"].items() if name in known}
    try:
        model = GPT(GPTConfig(**shape, attention="energy_gated" if is_gated(checkpoint) else "standard"))
        model.load_state_dict(weights)
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"the weights in {path} do not fit its hyperparameters {shape}: {error}") from error
    return model


def corpus_of(checkpoint: Mapping[str, Any], path: Path, text: Path | None = None) -> Corpus:
    """Find the vocabulary of a checkpoint: in it, or in the text that it was trained on.

    Args:
        checkpoint: What `read_language_model` gave.
        path: Where it was read, for messages.
        text: The text of the training; needed for checkpoints that do not hold their vocabulary.

    Raises:
        ValueError: There is no vocabulary, or the text is not that of the training.
    """
    data = checkpoint.get("datamodule_hyper_parameters", {})
    if text is not None:
        corpus = Corpus.from_text(read_text(text), text.name)
        if corpus.sha256 != data.get("data_sha256", corpus.sha256):
            raise ValueError(
                f"{text} has the sha256 {corpus.sha256}, but the model in {path} was trained on {data['data_name']} "
                f"with {data['data_sha256']}: give that text"
            )
        return corpus
    vocabulary = vocabulary_of(checkpoint)
    if vocabulary is None:
        raise ValueError(
            f"{path} does not say which characters its tokens stand for: it is of an earlier version, or its data had "
            "no vocabulary. Give the text it was trained on: --text FILE"
        )
    return Corpus.from_text(vocabulary, data.get("data_name", "the training text"))  # one of each: the same vocabulary


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="scalepod generate", description=DESCRIPTION)
    parser.add_argument("--ckpt_path", type=Path, required=True, metavar="FILE", help="checkpoint of a scalepod model")
    parser.add_argument("--prompt", required=True, help="text to continue; characters of the training text only")
    parser.add_argument("--max_new_tokens", type=int, default=500, metavar="N", help="characters to add (default: 500)")
    parser.add_argument("--temperature", type=float, default=1.0, help="below 1 is safer, above 1 wilder (default: 1)")
    parser.add_argument("--top_k", type=int, metavar="K", help="draw among the K likeliest only (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same text (default: 0)")
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="training text, if the checkpoint lacks its characters"
    )
    return parser
