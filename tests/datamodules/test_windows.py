from types import SimpleNamespace

import pytest
import torch

from scalepod.datamodules import CharTextDataModule
from scalepod.datamodules.windows import Windows, WindowSampler


@pytest.mark.parametrize(
    ("n", "block_size", "stride"), [(50, 7, 7), (50, 7, 1), (15, 7, 7), (14, 7, 7), (8, 7, 7), (6, 1, 1)]
)
def test_windows_are_the_stretches_that_fit(n, block_size, stride):
    tokens = torch.arange(n, dtype=torch.int32) * 3
    expected = []
    start = 0
    while start + block_size + 1 <= n:
        expected.append(
            ([3 * (start + i) for i in range(block_size)], [3 * (start + i + 1) for i in range(block_size)])
        )
        start += stride
    windows = Windows(tokens, block_size, stride)
    assert [(x.tolist(), y.tolist()) for x, y in windows] == expected
    assert len(windows) == len(expected)
    assert windows[0][0].dtype == windows[0][1].dtype == torch.int64


def test_no_window_behind_the_last():
    windows = Windows(torch.arange(20), block_size=4, stride=4)
    assert windows[-1][0].tolist() == windows[3][0].tolist() == [12, 13, 14, 15]
    with pytest.raises(IndexError):
        windows[4]


def test_validation_reads_its_split_once_without_overlap(counting_text):
    data = CharTextDataModule(counting_text, block_size=16, batch_size=4, val_fraction=0.2)
    batches = list(data.val_dataloader())
    read = [token for x, _ in batches for token in x.flatten().tolist()]
    assert read == list(range(800, 800 + 12 * 16))  # 192 of 200; the next window would need 17 more
    for x, y in batches:
        assert torch.equal(y, x + 1)  # in this text the token at position i is i
    assert [len(x) for x, _ in batches] == [4, 4, 4]


def test_training_stays_within_its_split(counting_text):
    data = CharTextDataModule(counting_text, block_size=16, batch_size=4, val_fraction=0.2)
    batches = list(data.train_dataloader())
    for x, y in batches:
        assert x.shape == y.shape == (4, 16)
        assert x.dtype == y.dtype == torch.int64
        assert torch.equal(y, x + 1)
        assert torch.equal(x, x[:, :1] + torch.arange(16))
        assert y.max() < 800
    assert len(batches) == len(data.train_dataloader()) == 13  # ceil(800 / (16 * 4))


def test_training_draws_every_place_alike():
    windows = Windows(torch.arange(14), block_size=4)  # starts at 0 to 9
    sampler = WindowSampler(windows, batch_size=100, n_batches=200, seed=1)
    counts = torch.bincount(torch.tensor(list(sampler)), minlength=10)
    assert len(counts) == 10
    assert len(sampler) == counts.sum() == 20_000
    # Of 20,000 uniform draws 2,000 fall on each place, with a standard deviation of 42.
    assert (counts - 2000).abs().max() < 5 * 42


def test_each_epoch_reads_other_windows_without_being_told(counting_text):
    data = CharTextDataModule(counting_text, block_size=16, batch_size=8)
    loader = data.train_dataloader()
    first, second = [torch.cat([x[:, 0] for x, _ in loader]) for _ in range(2)]
    assert not torch.equal(first, second)


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_share_a_batch(counting_text, world_size):
    def batches(batch_size, rank, world_size):
        data = CharTextDataModule(counting_text, block_size=16, batch_size=batch_size)
        data.trainer = SimpleNamespace(
            global_rank=rank, world_size=world_size, overfit_batches=0, fit_loop=SimpleNamespace(total_batch_idx=-1)
        )
        torch.manual_seed(5)
        return [x[:, 0].tolist() for x, _ in data.train_dataloader()]

    alone = batches(4 * world_size, rank=0, world_size=1)
    shares = [batches(4, rank, world_size) for rank in range(world_size)]
    assert all(len(share) == len(alone) for share in shares)
    for number, batch in enumerate(alone):
        assert batch == [share[number][i] for i in range(4) for share in shares]


def test_a_loop_without_a_trainer_can_be_resumed(counting_text):
    def loader():
        return CharTextDataModule(counting_text, block_size=16, batch_size=8).train_dataloader()

    torch.manual_seed(5)
    interrupted = loader()
    batches = iter(interrupted)
    next(batches), next(batches)
    state = interrupted.state_dict()
    rest = [x for x, _ in batches]
    torch.manual_seed(6)
    resumed = loader()
    resumed.load_state_dict(state)
    read = [x for x, _ in resumed]
    assert all(torch.equal(a, b) for a, b in zip(rest, read, strict=False))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_reading_draws_nothing_from_the_global_generator(counting_text, num_workers):
    data = CharTextDataModule(counting_text, block_size=16, batch_size=64, num_workers=num_workers)
    before = torch.get_rng_state()
    for loader in (data.train_dataloader(), data.val_dataloader()):
        assert len(list(loader)) > 0
    assert torch.equal(torch.get_rng_state(), before)
