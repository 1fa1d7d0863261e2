"""Checkpoints and best weights are without what of a model nobody changes, and come out whole."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import polyrhythm as pr
from polyrhythm.runs.checkpoints import checkpoints
from polyrhythm.runs.files import safetensors_bytes
from polyrhythm.runs.kept_weights import KeptWeights, with_base, without_base

STATE = {"base": torch.arange(6.0).reshape(2, 3), "learned": torch.tensor([1.0, 2.0])}
BASE = {"base": STATE["base"]}
ABOUT = {"run_id": "a", "version": "3"}


def test_what_is_kept_is_the_whole_file_and_does_not_change() -> None:
    state = {name: tensor.clone() for name, tensor in STATE.items()}
    kept = KeptWeights(state, {"base": state["base"]}, ABOUT)
    state["learned"].zero_()
    assert b"".join(kept.whole()) == safetensors_bytes(STATE, ABOUT)


@pytest.mark.parametrize("base", [BASE, {}])
def test_a_file_without_its_base_becomes_the_same_file_again(base: dict[str, torch.Tensor], tmp_path: Path) -> None:
    whole, path = safetensors_bytes(STATE, ABOUT), tmp_path / "best.safetensors"
    path.write_bytes(whole)
    for content in (without_base(path, base), KeptWeights(STATE, base, ABOUT).learned(), whole):
        again = with_base(content, base)
        assert (again if isinstance(again, bytes) else b"".join(again)) == whole
    assert len(without_base(path, BASE)) < len(whole)


@pytest.mark.parametrize("content", [b"", b"x", b"\xff" * 40, b"\x02" + bytes(7) + b"[]", b"\x04" + bytes(7) + b"null"])
def test_a_checkpoint_s_best_weights_that_are_none_are_refused(content: bytes) -> None:
    with pytest.raises(pr.UserError, match="best weights cannot be read"):
        with_base(content, BASE)


def test_checkpoints_have_no_frozen_weights_and_a_resumed_run_has_its_best_ones(tmp_path: Path) -> None:
    torch.manual_seed(0)
    wide = 512
    given = nn.Sequential(nn.Flatten(), nn.Linear(64, wide).requires_grad_(False), nn.Linear(wide, 10))
    federation = pr.federate(pr.data.digits(), pr.data.Iid(), clients=4, seed=0, validation=0.2)
    plan = pr.Experiment(federation=federation, model=given, recipe=pr.fedavg(cohort=2, lr=0.1), rounds=2)
    run = pr.run(plan, execution=pr.Execution(checkpoint=pr.Checkpoint(every=1)), out=tmp_path)
    frozen, learned = 4 * 64 * wide, 4 * 11 * wide
    assert 0 < max(path.stat().st_size for path in checkpoints(run.path)) < frozen + learned
    assert torch.equal(load_file(run.path / "best.safetensors")["1.weight"], given[1].weight)
    (run.path / "best.safetensors").unlink()
    longer = dataclasses.replace(plan, rounds=3)
    resumed, at_once = pr.resume(longer, run, out=tmp_path), pr.run(longer, out=tmp_path)
    found, wanted = (load_file(one.path / "best.safetensors") for one in (resumed, at_once))
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
