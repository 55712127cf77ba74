"""What the results of a run say of where they come from."""

import json

import torch
from tiny import TinyModule, tiny_loader, tiny_trainer
from torch.utils.data import DataLoader

import scalepod
from scalepod.callbacks import ScalePODCallback
from scalepod.callbacks import provenance as module_under_test
from scalepod.callbacks.documents import HeldOutBatch, held_out_batches


def forward(module, batch):
    """Runs a module on the first of a pair."""
    return module(batch[0])


def origin(folder, loader=None, validation=None, **options):
    callback = ScalePODCallback(None, n_snapshots=6, images=False, dataloader=loader, **options)
    tiny_trainer(folder, max_steps=1, callbacks=[callback]).fit(TinyModule(), tiny_loader(), validation)
    loaded = scalepod.load(folder)
    assert all(header.provenance == callback.provenance for header in loaded.headers.values())
    return loaded.header.provenance


def test_every_firing_says_where_it_is_from(tmp_path):
    found = origin(tmp_path, validation=tiny_loader(seed=1), burn_in=2, forward_fn=forward, bands={"near": 3})
    assert (found.model, found.data) == ("tiny.TinyModule", "torch.utils.data.dataset.TensorDataset")
    assert (found.n_documents, found.processes, found.device, found.precision) == (6, 1, "cpu", "32-true")
    assert (found.torch, found.checkpoint) == (torch.__version__, None)
    assert found.options["forward_fn"].endswith(".forward")
    assert found.options.items() >= {"burn_in": 2, "bands": {"near": 3}, "epsilons": [0.1, 0.05, 0.01]}.items()
    assert json.loads(json.dumps(found.options)) == found.options


def test_the_checksum_is_that_of_the_documents_however_they_are_batched(tmp_path):
    checksums = {
        name: origin(tmp_path / name, loader).data_sha256
        for name, loader in {
            "four": tiny_loader(seed=1),
            "three": tiny_loader(batch_size=3, seed=1),
            "shuffled": tiny_loader(seed=1, shuffle=True),
            "other": tiny_loader(seed=2),
        }.items()
    }
    assert checksums["four"] == checksums["three"] == checksums["shuffled"]
    assert checksums["four"] != checksums["other"]
    assert len(checksums["four"]) == 64


def test_one_token_order_type_and_shape_change_the_checksum():
    tokens = torch.arange(24).view(4, 6)
    other = tokens.clone()
    other[2, 3] += 1
    batches = [tokens, other, tokens.flip(0), tokens.int(), tokens.view(4, 2, 3), [tokens, torch.tensor(1)]]
    digests = [module_under_test._digests([HeldOutBatch(batch, 4)]) for batch in batches]
    assert len({scalepod.provenance.checksum(some) for some in digests}) == len(batches)
    assert module_under_test._digests([HeldOutBatch(tokens, 3)]) == digests[0][:3]
    assert digests[1][:2] == digests[0][:2]


def test_the_order_is_that_of_one_process_when_there_are_several(monkeypatch):
    loader = tiny_loader(seed=1)
    shares = [module_under_test._digests(held_out_batches(loader, 7, rank, 3)) for rank in range(3)]

    def gathered(everyone, mine):
        everyone[:] = shares

    monkeypatch.setattr(torch.distributed, "all_gather_object", gathered)
    trainer = type("Three", (), {"world_size": 3})()
    found = module_under_test._digests_of_all(trainer, held_out_batches(loader, 7, 0, 3))
    assert found == module_under_test._digests(held_out_batches(loader, 7))
    shares[1] = None
    assert module_under_test._digests_of_all(trainer, []) is None


def test_documents_without_plain_bytes_have_no_checksum():
    assert module_under_test._digests([HeldOutBatch(torch.eye(4, 5).to_sparse(), 4)]) is None


def test_what_was_given_instead_of_validation_data_is_named(tmp_path):
    batch = next(iter(tiny_loader()))
    assert origin(tmp_path / "batches", [batch, batch]).data == "builtins.list"
    assert origin(tmp_path / "rows", DataLoader(list(batch[0]))).data == "builtins.list"
