"""Pretrained models of the Hugging Face ecosystem from a folder of this machine, whole or with a LoRA adapter.

Rules of this file:

- Nothing is asked of a network, no code comes with a model, and weights are read from safetensors files alone: the
  folder may be anybody's.
- The library's warnings about itself are not the user's, and stay quiet.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import check_file, json_of
from polyrhythm.base.settings import Count, Decay, Positive, Settings
from polyrhythm.base.vectors import RESIDUAL

ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
_LAYERS = 10_000  # of a model, at most
_NUMBERS = 2**40  # parameters that a folder may describe, at most


@final
@dataclass(frozen=True, kw_only=True)
class Pretrained(Settings):
    """A builder of a pretrained transformer, with a low-rank adapter where `rank` is given.

        model = pr.models.Pretrained(path="stories260k", rank=8)   # hf(path=stories260k, rank=8) in files

    With an adapter a layer's weights W stay as they are, in memory once, and W + alpha/rank · B A is what it computes;
    only A, B and a head of classes learn, travel and are remembered. B begins as zero, so the first model is the
    pretrained one to the last bit. A and heads are drawn by the run's `init` stream. Averages of A and of B are not the
    average of B A: `freeze="A"` makes them so, and halves what travels.

    The folder holds config.json and *.safetensors, as `save_pretrained` writes them. Its weights are part of what a run
    begins with, so a run does not go on with others. Needs the extra `text`.

    Args:
        path: the folder.
        head: "causal" for the next token, with the task `next_token`; "classes" for one class a text, with a head of
            as many as the data have.
        rank: of the adapter, r ≥ 1; None trains all weights.
        alpha: the adapter counts alpha / rank times; None is twice the rank.
        targets: the layers that have one, by the ends of their names, such as ("q_proj", "v_proj"); "all-linear" for
            all but the head.
        dropout: share of an adapted layer's inputs that it does not see in training, 0 ≤ share < 1.
        freeze: "A" leaves every A as it was drawn.

    Reference: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, section 4.1; with A frozen
    Sun et al., "Improving LoRA in Privacy-preserving Federated Learning", ICLR 2024.
    """

    path: str
    head: Literal["causal", "classes"] = "causal"
    rank: Count | None = None
    alpha: Positive | None = None
    targets: tuple[str, ...] | str = "all-linear"
    dropout: Decay = 0.0
    freeze: Literal["none", "A"] = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank is None and (self.alpha is not None or self.dropout or self.freeze != "none"):
            raise UserError(
                "settings of an adapter without its rank",
                expected="rank, such as 8",
                why="without one all weights learn, and there is no adapter",
                fix="give rank, or leave alpha, dropout and freeze out",
            )

    def __call__(self, outputs: int) -> nn.Module:
        """The model.

        Args:
            outputs: classes, where it has a head of them.

        Raises:
            UserError: the extra is not installed, the folder holds no such model, or layers that are not in it.
        """
        folder = Path(self.path).expanduser()
        _check_folder(folder)
        transformers, more = _library("transformers"), dict[str, Any]()
        kind = transformers.AutoModelForCausalLM
        if self.head == "classes":
            kind, more = transformers.AutoModelForSequenceClassification, {"num_labels": outputs}
        with _quiet(transformers):
            try:
                made: nn.Module = kind.from_pretrained(
                    str(folder),
                    local_files_only=True,
                    trust_remote_code=False,
                    use_safetensors=True,
                    dtype=torch.float32,
                    attn_implementation="eager",  # a name in the folder's file could stand for code to be fetched
                    **more,
                )
            except Exception as error:  # whatever a library says of a folder that is not as it should be
                raise _no_model(folder, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
            made.config.use_cache = False  # type: ignore[union-attr]  # no text is made, so nothing is kept
            return (made if self.rank is None else self._adapted(made)).train()

    def _adapted(self, base: nn.Module) -> nn.Module:
        peft = _library("peft")
        config = peft.LoraConfig(
            r=self.rank,
            lora_alpha=2 * self.rank if self.alpha is None else self.alpha,  # type: ignore[operator]
            target_modules=self.targets if isinstance(self.targets, str) else list(self.targets),
            lora_dropout=self.dropout,
            task_type="CAUSAL_LM" if self.head == "causal" else "SEQ_CLS",
        )
        try:
            made: nn.Module = peft.get_peft_model(base, config)
        except ValueError as error:
            layers = {n.rpartition(".")[2] for n, part in base.named_modules() if isinstance(part, nn.Linear)}
            raise UserError(
                f"targets = {self.targets!r}",
                expected=f"ends of names of its layers: {', '.join(sorted(layers)[:20])}",
                why=f"an adapter is put on layers ({' '.join(str(error).split())[:100]})",
                fix='name some of these, or targets="all-linear"',
            ) from error
        for name, parameter in made.named_parameters():
            if self.freeze == "A" and ".lora_A." in name:
                parameter.requires_grad_(False)
        return made


def hf(
    outputs: int,
    *,
    path: str,
    head: Literal["causal", "classes"] = "causal",
    rank: Count | None = None,
    alpha: Positive | None = None,
    targets: tuple[str, ...] | str = "all-linear",
    dropout: Decay = 0.0,
    freeze: Literal["none", "A"] = "none",
) -> nn.Module:
    """Pretrained transformer from a folder of this machine, with a LoRA adapter of a rank. Needs the extra `text`.

    Args:
        outputs: classes, where it has a head of them.
        path, head, rank, alpha, targets, dropout, freeze: as in `Pretrained`.

    Raises:
        UserError: as `Pretrained` does.

    Reference: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, section 4.1.
    """
    made = Pretrained(path=path, head=head, rank=rank, alpha=alpha, targets=targets, dropout=dropout, freeze=freeze)
    return made(outputs)


def save_adapter(module: nn.Module, folder: Path) -> Path:
    """Writes a model's adapter as peft does: adapter_config.json and adapter_model.safetensors.

    Args:
        module: the model, with its weights.
        folder: made if need be; files of these names are overwritten.

    Raises:
        UserError: the model has no adapter.
    """
    save: Any = getattr(module, "save_pretrained", None)
    if save is None or not hasattr(module, "peft_config"):
        raise UserError(
            f"{type(module).__name__} has no adapter",
            expected="a model with one: hf(path=…, rank=8), or a module of peft",
            why="what would be written is what an adapter adds to its base",
            fix='run.weights("final") gives all weights of a model',
        )
    if any(name.endswith(RESIDUAL) for name, _ in module.named_parameters()):
        raise UserError(
            f"{type(module).__name__} whose weights under the adapter have changed",
            expected="an adapter on the base model as it was",
            why="put on that, the adapter alone would be another model than the run has made",
            fix="take all weights, run.model() or run.weights(), or a method that leaves the base as it is",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(str(folder), safe_serialization=True, save_embedding_layers=False)
    return folder


def load_adapter(module: nn.Module, folder: Path) -> nn.Module:
    """Puts the weights of a folder's adapter into a model that was made for it.

    Args:
        module: with an adapter of the same form; changed.
        folder: as `save_adapter` writes it.

    Raises:
        UserError: no adapter in the folder, or one of another form.
    """
    from safetensors.torch import load_file

    try:
        check_file(folder / ADAPTER)
        found = load_file(folder / ADAPTER)
    except Exception as error:  # whatever a library says of a damaged file
        raise _no_adapter(folder, f"{ADAPTER} cannot be read: {error}") from error
    own = {_plain(name): tensor for name, tensor in module.state_dict().items() if _of_adapter(name)}
    odd = sorted(found.keys() ^ own.keys()) or [n for n in own if own[n].shape != found[n].shape]
    if odd:
        raise _no_adapter(folder, f"{odd[0]} is not the same in both")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(found[name])
    return module


def is_adapter(source: object) -> bool:
    """Whether a path is that of a folder with an adapter."""
    return isinstance(source, (str, Path)) and (Path(source) / ADAPTER).is_file()


def adapter_of(module: nn.Module) -> Mapping[str, Tensor]:
    """The tensors of a model's adapter, as peft names them in files."""
    return {_plain(name): tensor for name, tensor in module.state_dict().items() if _of_adapter(name)}


def _of_adapter(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name or ".modules_to_save." in name


def _plain(name: str) -> str:
    """A name without that of the adapter, which is "default" in memory and left out in files."""
    return name.replace(".modules_to_save.default.", ".").replace(".default.", ".")


def _library(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"the library {name} is not installed",
            expected="transformers and peft",
            why="they read pretrained models, and put adapters on them",
            fix='pip install "polyrhythm[text]"',
        ) from error


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """A block in which the library shows no bars and warns of nothing."""
    told, shown = transformers.utils.logging, transformers.utils.logging.is_progress_bar_enabled()
    told.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if shown:
            told.enable_progress_bar()


def _check_folder(folder: Path) -> None:
    """Goes on if a folder holds a model whose reading runs no code of others and takes no end.

    Raises:
        UserError: it does not.
    """
    config = folder / "config.json"
    try:
        about = json_of(config)
        weights = sorted(folder.glob("*.safetensors"))
        for path in weights:
            check_file(path)
    except (OSError, ValueError) as error:
        raise _no_model(folder, f"config.json cannot be read ({error})") from error
    if not isinstance(about, dict):
        raise _no_model(folder, "config.json is no description of a model")
    if not weights:
        raise _no_model(folder, "it has no *.safetensors")
    if (folder / ADAPTER_CONFIG).exists():
        raise _no_model(folder, "it is an adapter: give its base model's folder here, and the adapter as `initial`")
    for key in ("auto_map", "quantization_config"):
        if key in about:
            raise _no_model(folder, f"its config.json has {key}, which would run other code than transformers' own")
    for key, value in about.items():
        number = isinstance(value, int) and not isinstance(value, bool)
        if number and (value > _NUMBERS or ("layer" in key and value > _LAYERS)):
            raise _no_model(folder, f"its config.json has {key} = {value:,}")


def _no_model(folder: Path, found: str) -> UserError:
    return UserError(
        f"{folder}: {found}",
        expected="a folder with a model as save_pretrained writes it: config.json and *.safetensors",
        why="a model is read from files of this machine, by transformers' own code",
        fix="download the model's files first, and give their folder",
    )


def _no_adapter(folder: Path, found: str) -> UserError:
    return UserError(
        f"{folder}: {found}",
        expected="an adapter of this model: the same rank and targets",
        why="its weights go into the model by their names",
        fix="build the model as it was when the adapter was made; adapter_config.json says how",
    )
