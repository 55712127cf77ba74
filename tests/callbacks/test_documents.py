"""Which held-out documents are chosen, and how they are dealt out to processes."""

from dataclasses import dataclass

import pytest
import torch
from tiny import TinyModule, tiny_loader, tiny_trainer
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from scalepod.callbacks import ScalePODCallback
from scalepod.callbacks.documents import batch_size, find_source, held_out_batches


class Numbers(Dataset):
    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.tensor([i, i])


class Stream(IterableDataset):
    def __iter__(self):
        return (torch.tensor([i, i]) for i in range(30))


def documents(batches) -> list[int]:
    return [int(row[0]) for held in batches for row in held.batch[: held.n_documents]]


@pytest.mark.parametrize("n", [1, 3, 7, 20, 50])
def test_spread_evenly_over_a_data_set(n):
    found = documents(held_out_batches(DataLoader(Numbers(20), batch_size=4), n))
    expected = [i * 20 // min(n, 20) for i in range(min(n, 20))]
    assert found == expected


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_same_documents_whatever_the_order_of_the_loader(shuffle):
    assert documents(held_out_batches(DataLoader(Numbers(20), batch_size=4, shuffle=shuffle), 5)) == [0, 4, 8, 12, 16]


def test_a_subset_sampler_is_respected():
    loader = DataLoader(Numbers(20), batch_size=4, sampler=SubsetRandomSampler([3, 19, 11, 7]))
    assert documents(held_out_batches(loader, 10)) == [3, 7, 11, 19]


def test_a_batch_sampler_is_respected():
    batches = BatchSampler(SubsetRandomSampler([3, 19, 11, 7]), 2, False)
    assert documents(held_out_batches(DataLoader(Numbers(20), batch_sampler=batches), 10)) == [3, 7, 11, 19]


def test_a_batch_sampler_of_ones_own_is_iterated():
    assert documents(held_out_batches(DataLoader(Numbers(20), batch_sampler=[[5, 6], [9, 8]]), 3)) == [5, 6, 9]


@pytest.mark.parametrize("where", ["loader", "sampler"])
def test_a_generator_shared_with_training_is_put_back(where):
    generator = torch.Generator().manual_seed(0)
    sampler = WeightedRandomSampler([1.0] * 20, 8, generator=generator if where == "sampler" else None)
    loader = DataLoader(Numbers(20), batch_size=4, sampler=sampler, generator=generator if where == "loader" else None)
    before = generator.get_state()
    held_out_batches(loader, 5)
    assert torch.equal(generator.get_state(), before)


def test_an_unknown_sampler_is_iterated():
    loader = DataLoader(Numbers(20), batch_size=4, sampler=[5, 6, 7, 8, 9, 10])
    assert documents(held_out_batches(loader, 5)) == [5, 6, 7, 8, 9]


def test_a_stream_gives_its_first_documents():
    assert documents(held_out_batches(DataLoader(Stream(), batch_size=4), 10)) == list(range(10))


@pytest.mark.parametrize(("n", "world"), [(10, 2), (7, 3), (2, 4)])
def test_processes_share_the_documents_and_run_as_many_batches(n, world):
    loader = DataLoader(Numbers(40), batch_size=2, sampler=DistributedSampler(Numbers(40), world, 0))
    loader.sampler.dataset = loader.dataset
    shares = [held_out_batches(loader, n, rank, world) for rank in range(world)]
    assert sorted(i for share in shares for i in documents(share)) == documents(held_out_batches(loader, n))
    assert len({len(share) for share in shares}) == 1


@dataclass
class Batch:
    name: str
    tokens: torch.Tensor


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(3, 2),
        {"n": torch.tensor(7), "x": torch.zeros(3, 2)},
        Batch("a", torch.zeros(3, 2)),
    ],
)
def test_one_batch_is_a_source(batch):
    (held,) = held_out_batches(batch, 2)
    assert held.batch is batch
    assert held.n_documents == 2
    assert batch_size(batch) == 3


def test_batch_size_of_a_tuple():
    assert batch_size((torch.zeros(5, 2), torch.zeros(5))) == 5


def test_errors():
    with pytest.raises(ValueError, match="no tensor in it"):
        batch_size({"text": "words"})
    with pytest.raises(ValueError, match="yields no batch"):
        held_out_batches([], 3)
    with pytest.raises(ValueError, match="data set is empty"):
        held_out_batches(DataLoader(Numbers(0), batch_size=2), 3)


@pytest.mark.parametrize("kind", ["loader", "list", "dict", "module", "no validation loop"])
def test_validation_data_is_found_wherever_it_is(tmp_path, kind):
    class Found(ScalePODCallback):
        def _fetch(self, trainer):
            self.source = find_source(trainer)
            return super()._fetch(trainer)

    class WithData(TinyModule):
        def val_dataloader(self):
            return loader

    loader = tiny_loader(seed=1)
    callback = Found(n_snapshots=4, images=False, field=False, on_error="raise")
    model = WithData() if kind == "module" else TinyModule()
    given = {"list": [loader, tiny_loader(seed=2)], "dict": {"a": loader}, "module": None}.get(kind, loader)
    limit = {"limit_val_batches": 0} if kind == "no validation loop" else {}
    tiny_trainer(tmp_path, max_steps=1, callbacks=[callback], **limit).fit(model, tiny_loader(), given)
    assert callback.source.dataset is loader.dataset
