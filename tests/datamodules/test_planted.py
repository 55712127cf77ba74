import pytest
import torch

from scalepod.datamodules import PlantedScales


@pytest.mark.parametrize(("lag", "repeats"), [(3, 4), (12, 4), (7, 2)])
def test_words_are_repeated_at_the_lag(lag, repeats):
    text, name = PlantedScales(lag=lag, repeats=repeats, n_characters=10_000).load_text()
    assert len(text) == 10_000
    assert name == f"planted-lag-{lag}"
    run = lag * repeats
    for start in range(0, 10_000 - run, run):
        assert text[start : start + run] == text[start : start + lag] * repeats


def test_only_multiples_of_the_lag_tell_more_than_chance():
    lag, repeats, size = 12, 4, 5
    data = PlantedScales(lag, repeats, n_characters=100_000, alphabet_size=size)
    tokens = data.corpus.tokens
    assert data.vocab_size == size
    for tau in range(1, 60):
        match = (tokens[tau:] == tokens[:-tau]).float().mean().item()
        same_word = 1 - tau / (lag * repeats) if tau % lag == 0 and tau < lag * repeats else 0
        assert match == pytest.approx(same_word + (1 - same_word) / size, abs=0.02)


def test_the_text_depends_on_its_own_seed_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = PlantedScales(n_characters=1000).load_text()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert PlantedScales(n_characters=1000).load_text() == first
    assert PlantedScales(n_characters=1000, seed=1).load_text() != first


def test_batches():
    data = PlantedScales(lag=4, n_characters=5000, block_size=32, batch_size=8)
    data.prepare_data()
    data.setup("fit")
    x, y = next(iter(data.train_dataloader()))
    assert x.shape == y.shape == (8, 32)
    assert torch.equal(x[:, 1:], y[:, :-1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lag": 0}, "lag must be at least 1, got 0"),
        ({"repeats": 1}, "repeats must be at least 2, got 1"),
        ({"n_characters": 0}, "n_characters must be at least 1, got 0"),
        ({"alphabet_size": 1}, "alphabet_size must be from 2 to 26, got 1"),
        ({"alphabet_size": 27}, "alphabet_size must be from 2 to 26, got 27"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        PlantedScales(**options)
