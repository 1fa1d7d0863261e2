"""Folders with an adapter in peft's own form, of models by peft and of those that `with_lora` has adapted.

Rules of this file:

- A folder has adapter_config.json and adapter_model.safetensors, with names as peft has them: `base_model.model.`, the
  layer, `.lora_A.weight`. Whatever else learns, such as a head, is in it whole, and named in `modules_to_save`.
- Where a model is an encoder of transformers' own and a head of ours, names are the encoder's, so that peft puts the
  adapter on that one. The head is in the file all the same, and peft leaves it there.
- The weights under an adapter are not in it, but their digest is: put on others, it would be another model.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import check_file
from polyrhythm.base.tensor_names import frozen_in, joined, named_parts
from polyrhythm.base.vectors import RESIDUAL
from polyrhythm.models.low_rank import LowRank

ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
_BASE, _PREFIX = "base_sha256", "base_model.model."


def save_adapter(module: nn.Module, folder: Path) -> Path:
    """Writes a model's adapter as peft does: adapter_config.json and adapter_model.safetensors.

    Args:
        module: the model, with its weights: of peft, or as `with_lora` makes it.
        folder: made if need be; files of these names are overwritten.

    Raises:
        UserError: the model has no adapter, or one on weights that have changed.
    """
    from safetensors.torch import save_file

    by_peft: Any = getattr(module, "save_pretrained", None) if hasattr(module, "peft_config") else None
    if by_peft is None and not any(isinstance(part, LowRank) for part in module.modules()):
        raise UserError(
            f"{type(module).__name__} has no adapter",
            expected="a model with one: hf(path=…, rank=8), with_lora(mlp, rank=8), or a module of peft",
            why="what would be written is what an adapter adds to its base",
            fix='run.weights("final") gives all weights of a model',
        )
    if any(name.rpartition(".")[2] == RESIDUAL for name, _ in module.named_parameters()):
        raise UserError(
            f"{type(module).__name__} whose weights under the adapter have changed",
            expected="an adapter on the base model as it was",
            why="put on that, the adapter alone would be another model than the run has made",
            fix="take all weights, run.model() or run.weights(), or a method that leaves the base as it is",
        )
    folder.mkdir(parents=True, exist_ok=True)
    if by_peft is None:
        (folder / ADAPTER_CONFIG).write_text(json.dumps(_config_of(module), indent=2) + "\n")
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            by_peft(str(folder), safe_serialization=True, save_embedding_layers=False)
        if _inside(module):
            about = json.loads((folder / ADAPTER_CONFIG).read_text())
            about |= {"auto_mapping": None, "exclude_modules": None, "modules_to_save": None}
            about["base_model_name_or_path"] = _where(module)
            (folder / ADAPTER_CONFIG).write_text(json.dumps(about, indent=2) + "\n")
    tensors = {name: tensor.contiguous().clone() for name, tensor in adapter_of(module).items()}
    save_file(tensors, folder / ADAPTER, {"format": "pt", _BASE: digest_of_base(module)})
    return folder


def load_adapter(module: nn.Module, folder: Path) -> nn.Module:
    """Puts the weights of a folder's adapter into a model that was made for it.

    Args:
        module: with an adapter of the same form; changed.
        folder: as `save_adapter` or peft writes it.

    Raises:
        UserError: no adapter in the folder, one of another form, or one for other weights under it.
    """
    from safetensors import safe_open

    try:
        check_file(folder / ADAPTER)
        with safe_open(folder / ADAPTER, framework="pt") as file:
            about = file.metadata() or {}
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # whatever a library says of a damaged file
        raise _no_adapter(folder, f"{ADAPTER} cannot be read: {error}") from error
    own, inside = adapter_of(module), _inside(module)
    found = {_of_encoder(name, inside): tensor for name, tensor in found.items()}
    odd = sorted(found.keys() ^ own.keys()) or [n for n in own if own[n].shape != found[n].shape]
    if odd:
        raise _no_adapter(folder, f"{odd[0]} is not the same in both")
    if _BASE in about and about[_BASE] != digest_of_base(module):
        raise UserError(
            f"{folder}: an adapter for other weights than those of this {type(module).__name__}",
            expected=f"the model that it was made on, whose digest begins with {about[_BASE][:12]}",
            why="put on other weights, it would be another model than the one that was trained",
            fix="give the folder of the model that it was made on; adapter_config.json may say which",
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(found[name])
    return module


def is_adapter(source: object) -> bool:
    """Whether a path is that of a folder with an adapter."""
    return isinstance(source, (str, Path)) and (Path(source) / ADAPTER).is_file()


def adapter_of(module: nn.Module) -> Mapping[str, Tensor]:
    """The tensors of a model's adapter, as peft names them in files; not copied."""
    if hasattr(module, "peft_config"):
        state = {name: tensor for name, tensor in module.state_dict().items() if ".original_module." not in name}
        found = {_plain(name): tensor for name, tensor in state.items() if _of_adapter(name)}
    else:
        found = {f"{_PREFIX}{name}": tensor for name, tensor in _of_layers(module)}
    inside = _inside(module)
    return {_of_encoder(name, inside): tensor for name, tensor in found.items()}


def digest_of_base(module: nn.Module) -> str:
    """SHA-256 of what lies under a model's adapters, as 16 bits hold it: of one read in bfloat16 it is the same."""
    digest, frozen = hashlib.sha256(), {_plain_base(n): t for n, t in frozen_in(module).items() if not _of_adapter(n)}
    for name in sorted(frozen):
        tensor = frozen[name].detach()
        kept = tensor.to(torch.bfloat16).view(torch.int16) if tensor.is_floating_point() else tensor
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(kept.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _of_layers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What learns of a module that `with_lora` has adapted, as peft names and shapes it."""
    adapted = {prefix: part for prefix, part in named_parts(module) if isinstance(part, LowRank)}
    for prefix, part in adapted.items():
        a, b = part.lora_A.detach(), part.lora_B.detach()
        if isinstance(part.base, nn.Embedding):
            yield from ((f"{prefix}.lora_embedding_A", a), (f"{prefix}.lora_embedding_B", b))
            continue
        if isinstance(part.base, nn.Conv2d):
            a, b = a.view(-1, *part.base.weight.shape[1:]), b[:, :, None, None]
        yield from ((f"{prefix}.lora_A.weight", a), (f"{prefix}.lora_B.weight", b))
    for prefix, other in named_parts(module):
        whole = {n: p for n, p in other._parameters.items() if p is not None and p.requires_grad}
        if prefix not in adapted:
            yield from ((joined(prefix, name), parameter.detach()) for name, parameter in whole.items())


def _config_of(module: nn.Module) -> dict[str, Any]:
    """What peft needs to know to put an adapter of ours on its base."""
    parts = dict(named_parts(module))
    adapted = {prefix: part for prefix, part in parts.items() if isinstance(part, LowRank)}
    first = next(iter(adapted.values()))
    rank, kind = first.lora_A.shape[0], type(module).__name__
    saved = {name.removeprefix(_PREFIX).rpartition(".")[0] for name in adapter_of(module) if ".lora_" not in name}
    inside = _inside(module)
    targets = _targets([name.removeprefix(inside) for name in adapted], [name.removeprefix(inside) for name in parts])
    tasks = {"ForCausalLM": "CAUSAL_LM", "ForSequenceClassification": "SEQ_CLS"}
    return {
        "peft_type": "LORA",
        "task_type": next((task for end, task in tasks.items() if kind.endswith(end)), None),
        "base_model_name_or_path": _where(module),
        "r": rank,
        "lora_alpha": first.scale * rank,
        "lora_dropout": first.dropout,
        "target_modules": targets,
        "modules_to_save": None if inside else sorted(saved) or None,
        "fan_in_fan_out": any(type(part.base).__name__ == "Conv1D" for part in adapted.values()),
        "bias": "none",
        "inference_mode": True,
    }


def _inside(module: nn.Module) -> str:
    """What the names of a model's encoder begin with where the model is not that alone; "" of all others."""
    base: Any = module.get_base_model() if hasattr(module, "peft_config") else module  # type: ignore[operator]
    return f"{base.encoder_name}." if isinstance(getattr(base, "encoder_name", None), str) else ""


def _of_encoder(name: str, inside: str) -> str:
    """A name in a file as the encoder alone has it."""
    return _PREFIX + name.removeprefix(_PREFIX).removeprefix(inside)


def _where(module: nn.Module) -> str | None:
    """The folder or name of what is under an adapter, if it says so."""
    return getattr(getattr(module, "config", None), "_name_or_path", None) or None


def _targets(adapted: list[str], parts: list[str]) -> list[str] | str:
    """The layers by name; a pattern where a name is the end of another one's, which peft would adapt as well."""
    also = {part for part in parts for name in adapted if part.endswith(f".{name}")}
    return adapted if also <= {*adapted} else "|".join(map(re.escape, adapted))


def _of_adapter(name: str) -> bool:
    return ".lora_" in f".{name}" or ".modules_to_save." in name or ".original_module." in name


def _plain(name: str) -> str:
    """A name without that of the adapter, which is "default" in memory and left out in files."""
    return re.sub(r"(\.lora_\w+)\.default\b", r"\1", name.replace(".modules_to_save.default.", "."))


def _plain_base(name: str) -> str:
    """A name as the base model has it, whoever has adapted it."""
    name = name.removeprefix(_PREFIX).replace(".base_layer.", ".")
    return re.sub(r"\.base\.(weight|bias)$", r".\1", name)


def _no_adapter(folder: Path, found: str) -> UserError:
    return UserError(
        f"{folder}: {found}",
        expected="an adapter of this model: the same rank and targets",
        why="its weights go into the model by their names",
        fix="build the model as it was when the adapter was made; adapter_config.json says how",
    )
