"""Adapters as files: of any module, in peft's own form, and for no other weights than those that they were made on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.models import MODELS, with_lora
from polyrhythm.models.adapter_files import adapter_of, digest_of_base, is_adapter, load_adapter, save_adapter
from polyrhythm.models.low_rank import adapted


class Mixed(nn.Module):
    """An embedding, a convolution, two layers of which one's name is the end of the other's, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 6)
        self.look = nn.Conv2d(1, 3, 3, padding=1)
        self.block = nn.ModuleDict({"mix": nn.Linear(18, 5)})
        self.mix = nn.Linear(5, 5)
        self.head = nn.Linear(5, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # [B, 6]
        maps: torch.Tensor = self.look(self.tokens(tokens)[:, None])
        return self.head(self.mix(torch.tanh(self.block["mix"](maps.mean(dim=2).flatten(1)))))  # type: ignore[no-any-return]


TOKENS = torch.arange(12).reshape(2, 6) % 11


def drawn(seed: int = 0, targets: tuple[str, ...] = ("tokens", "look", "mix"), *, head: bool = True) -> nn.Module:
    """Such a model with adapters that are not zero."""
    torch.manual_seed(seed)
    made = adapted(Mixed(), 2, 3.0, targets, head=head)
    for name, parameter in made.named_parameters():
        if ".lora_B" in name:
            nn.init.normal_(parameter)
    return made


def test_what_is_written_is_read_to_the_bit(tmp_path: Path) -> None:
    made = drawn()
    where = save_adapter(made, tmp_path / "adapter")
    assert is_adapter(where)
    torch.manual_seed(0)
    fresh = adapted(Mixed(), 2, 3.0, ("tokens", "look", "mix"))
    assert not torch.equal(fresh(TOKENS), made(TOKENS))
    assert torch.equal(load_adapter(fresh, where)(TOKENS), made(TOKENS))


@pytest.mark.parametrize("targets", [("tokens", "look", "mix"), ("mix",), ("*.mix",)])
@pytest.mark.parametrize("head", [True, False])
def test_peft_puts_it_on_the_base(targets: tuple[str, ...], head: bool, tmp_path: Path) -> None:
    """It is peft's own form for any module, whether a layer's name is the end of another one's or not."""
    peft = pytest.importorskip("peft", reason="the extra text is not installed")
    made = drawn(targets=targets, head=head).eval()
    where = save_adapter(made, tmp_path)
    torch.manual_seed(0)
    base = Mixed().eval()
    before = base(TOKENS)
    theirs = peft.PeftModel.from_pretrained(base, where).eval()
    with torch.no_grad():
        assert torch.allclose(theirs(TOKENS), made(TOKENS), rtol=0, atol=1e-6)
        assert not torch.allclose(before, made(TOKENS), rtol=0, atol=1e-2)
    assert {n: t.shape for n, t in adapter_of(theirs).items()} == {n: t.shape for n, t in adapter_of(made).items()}


def test_a_run_with_any_model_gives_its_adapter_and_another_begins_with_it(tmp_path: Path) -> None:
    federation = pr.federate(pr.data.digits(), pr.data.Iid(), clients=4, seed=0)
    given = {
        "federation": federation,
        "model": with_lora(MODELS["mlp"], rank=2),
        "recipe": pr.fedavg(cohort=2, lr=0.1),
        "rounds": 2,
    }
    done = pr.run(pr.Experiment(**given), out=tmp_path)  # type: ignore[arg-type]
    where = done.adapter(tmp_path / "adapter")
    assert json.loads((where / "adapter_config.json").read_text())["target_modules"] == ["hidden1", "hidden2"]
    again = pr.run(pr.Experiment(**given, initial=where), out=tmp_path)  # type: ignore[arg-type]
    assert again.history["test_loss"].iloc[0] == done.history["test_loss"].iloc[-1]
    with pytest.raises(UserError, match="an adapter for other weights"):
        pr.run(pr.Experiment(**given, initial=where, seed=1), out=tmp_path)  # type: ignore[arg-type]


def test_it_is_refused_on_other_weights_and_a_base_in_16_bits_is_the_same(tmp_path: Path) -> None:
    where = save_adapter(drawn(), tmp_path)
    with safe_open(where / "adapter_model.safetensors", framework="pt") as file:
        assert file.metadata()["base_sha256"] == digest_of_base(drawn())
    with pytest.raises(UserError, match="an adapter for other weights"):
        load_adapter(drawn(seed=1), where)
    halved = drawn()
    for parameter in halved.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.bfloat16()
    assert digest_of_base(halved) == digest_of_base(drawn())
    load_adapter(halved, where)


def test_libraries_of_language_models_are_loaded_when_a_model_is() -> None:
    code = """
import sys, polyrhythm as pr
from polyrhythm.models import MODELS, Pretrained
pr.fedavg(), pr.data.digits(), Pretrained(path="x", rank=2)
print(sorted({"transformers", "peft", "tokenizers", "accelerate"} & {name.partition(".")[0] for name in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_a_model_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no adapter"):
        save_adapter(nn.Linear(2, 2), tmp_path)
