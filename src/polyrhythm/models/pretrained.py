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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import check_file, json_of
from polyrhythm.base.settings import Count, Decay, Positive, Settings
from polyrhythm.models.adapter_files import ADAPTER_CONFIG

_LAYERS = 10_000  # of a model, at most
_NUMBERS = 2**40  # parameters that a folder may describe, at most

Dtype = Literal["float32", "bfloat16", "int8", "int4"]


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
        freeze: "A" leaves every A as it was drawn; "base" leaves all but the head of classes as they are, without
            dropout, so that the head alone learns and travels.
        pooling: how a text becomes one vector before the head of classes: "own" as its architecture does, such as the
            first token through a layer more; "mean" is the mean over its tokens, which is what sentence encoders are
            trained for.
        dtype: of the weights under an adapter; "bfloat16" halves their memory. What learns is float32 all the same.
            "int8" and "int4" are refused in words: kernels of CUDA cards alone compute with such weights.

    Reference: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, section 4.1; with A frozen
    Sun et al., "Improving LoRA in Privacy-preserving Federated Learning", ICLR 2024.
    """

    path: str
    head: Literal["causal", "classes"] = "causal"
    rank: Count | None = None
    alpha: Positive | None = None
    targets: tuple[str, ...] | str = "all-linear"
    dropout: Decay = 0.0
    freeze: Literal["none", "A", "base"] = "none"
    pooling: Literal["own", "mean"] = "own"
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype in ("int8", "int4"):
            raise UserError(
                f"dtype = {self.dtype}",
                expected="float32 or bfloat16",
                why=f"weights of {self.dtype[3:]} bits need kernels of CUDA cards, with which this has not been "
                "tried: elsewhere every pass would unpack them, and a simulation and a device would differ",
                fix="dtype=bfloat16 with rank takes half the memory, on every machine",
            )
        if self.head != "classes" and (self.freeze == "base" or self.pooling != "own"):
            raise UserError(
                f"freeze={self.freeze}, pooling={self.pooling} with head={self.head}",
                expected="head=classes",
                why="they say what becomes of a text before a head of classes, and a causal model has none",
                fix="give head=classes, or leave them out",
            )
        if self.freeze == "base" and self.rank is not None:
            raise UserError(
                f"freeze=base with rank={self.rank}",
                expected="one of them",
                why="with the base frozen the head alone learns, and an adapter would change what goes into it",
                fix="leave rank out, or freeze=none",
            )
        if self.rank is None and (self.alpha is not None or self.dropout or self.freeze == "A"):
            raise UserError(
                "settings of an adapter without its rank",
                expected="rank, such as 8",
                why="without one all weights learn, and there is no adapter",
                fix="give rank, or leave alpha, dropout and freeze out",
            )
        if self.rank is None and self.dtype != "float32":
            raise UserError(
                f"dtype = {self.dtype} without rank",
                expected="rank, such as 8, so that weights of 16 bits stay as they are",
                why="steps smaller than 1/256 of a weight would leave it as it was, and nothing would be learned",
                fix="give rank; or leave dtype out, and compute in 16 bits with float32 weights: precision=bfloat16",
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
        if self.pooling == "mean":
            kind = transformers.AutoModel
        elif self.head == "classes":
            kind, more = transformers.AutoModelForSequenceClassification, {"num_labels": outputs}
        with _quiet(transformers):
            try:
                made, loaded = kind.from_pretrained(
                    str(folder),
                    local_files_only=True,
                    trust_remote_code=False,
                    use_safetensors=True,
                    dtype=getattr(torch, self.dtype),
                    attn_implementation="eager",  # a name in the folder's file could stand for code to be fetched
                    output_loading_info=True,
                    **more,
                )
            except Exception as error:  # whatever a library says of a folder that is not as it should be
                raise _no_model(folder, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
            made.config.use_cache = False  # no text is made, so nothing is kept
            new = self._new_layers(folder, made, loaded["missing_keys"])
            if self.pooling == "mean":
                made, new = MeanPooled(made, outputs), ["head"]
            if self.freeze == "base":
                _freeze(made.base_model)
            return (made if self.rank is None else self._adapted(made, new)).train()

    def _new_layers(self, folder: Path, made: Any, missing: Iterable[str]) -> list[str]:
        """The layers of a head of classes that the folder has no weights for: they are drawn, and learn.

        Raises:
            UserError: other weights are missing, which nobody would notice where they are drawn as well.
        """
        inside = "" if self.pooling == "mean" or self.head == "causal" else f"{made.base_model_prefix}."
        unused = ("pooler.",) if self.pooling == "mean" else ()
        odd = sorted(name for name in missing if name.startswith(inside) and not name.startswith(unused))
        if odd:
            raise UserError(
                f"{folder}: its files have no {', '.join(odd[:4])}{' …' if len(odd) > 4 else ''}",
                expected=f"all weights of a {type(made).__name__}",
                why="what is missing would be drawn at random, and the model would not be the pretrained one",
                fix='take a folder with the whole model, or head="classes" for an encoder of texts',
            )
        return sorted({name.partition(".")[0] for name in missing})

    def _kind(self) -> dict[str, Any]:
        """What says to peft which model it is, and which layers of it take no adapter."""
        if self.pooling == "mean":
            return {"exclude_modules": ["head"]}
        return {"task_type": "CAUSAL_LM" if self.head == "causal" else "SEQ_CLS"}

    def _adapted(self, base: nn.Module, new: list[str]) -> nn.Module:
        peft = _library("peft")
        config = peft.LoraConfig(
            r=self.rank,
            lora_alpha=2 * self.rank if self.alpha is None else self.alpha,  # type: ignore[operator]
            target_modules=self.targets if isinstance(self.targets, str) else list(self.targets),
            lora_dropout=self.dropout,
            modules_to_save=new or None,
            **self._kind(),
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
        return _learning_in_float32(made)


@final
class Wide(nn.Linear):
    """A linear layer in float32, whatever it is given: of a head that learns on what computes in 16 bits."""

    def forward(self, input: Tensor) -> Tensor:  # as torch calls it
        return super().forward(input.to(self.weight.dtype))


def _learning_in_float32(module: nn.Module) -> nn.Module:
    """A module of which all that learns is float32, in place; peft sees to adapters, but not to heads."""
    for part in module.modules():
        if any(p.requires_grad and p.dtype != torch.float32 for p in part._parameters.values() if p is not None):
            if type(part) is nn.Linear:
                part.__class__ = Wide
            part.float()
    return module


@final
class MeanPooled(nn.Module):
    """An encoder, the mean of what it gives over a text's tokens, and a linear head.

    Args:
        base: gives `last_hidden_state` [B, L, d].
        outputs: of the head.
    """

    encoder_name: ClassVar[str] = "base_model"
    """The part that is transformers' own: an adapter's file has the names of its layers."""

    def __init__(self, base: nn.Module, outputs: int) -> None:
        super().__init__()
        self.base_model, self.config = base, base.config
        self.head = nn.Linear(base.config.hidden_size, outputs)  # type: ignore[union-attr, arg-type]
        if isinstance(pooler := getattr(base, "pooler", None), nn.Module):
            pooler.requires_grad_(False)  # nothing of it goes into the mean

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits of texts. [B, C]

        Args:
            input_ids: [B, L] tokens.
            attention_mask: [B, L], 1 for those that are the text's own.
        """
        given = self.base_model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(given.dtype)
        logits: Tensor = self.head((given * mask).sum(1) / mask.sum(1).clamp(min=1))
        return logits


def _freeze(base: nn.Module) -> None:
    """Lets nothing of a base learn or drop out: what it gives for a text is one vector, in training and in tests."""
    base.requires_grad_(False)
    for part in base.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0


def hf(
    outputs: int,
    *,
    path: str,
    head: Literal["causal", "classes"] = "causal",
    rank: Count | None = None,
    alpha: Positive | None = None,
    targets: tuple[str, ...] | str = "all-linear",
    dropout: Decay = 0.0,
    freeze: Literal["none", "A", "base"] = "none",
    pooling: Literal["own", "mean"] = "own",
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> nn.Module:
    """Pretrained transformer from a folder of this machine, with a LoRA adapter of a rank. Needs the extra `text`.

    Args:
        outputs: classes, where it has a head of them.
        path, head, rank, alpha, targets, dropout, freeze, pooling, dtype: as in `Pretrained`.

    Raises:
        UserError: as `Pretrained` does.

    Reference: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, section 4.1.
    """
    given: dict[str, Any] = {"path": path, "head": head, "rank": rank, "alpha": alpha, "targets": targets}
    return Pretrained(**given, dropout=dropout, freeze=freeze, pooling=pooling, dtype=dtype)(outputs)


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
    loud = told.get_verbosity()
    told.disable_progress_bar()
    told.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        told.set_verbosity(loud)
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
