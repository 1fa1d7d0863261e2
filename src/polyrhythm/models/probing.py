"""Runs a copy of a model on a few samples, so that a model that does not fit its data is refused before a run."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.module_copies import copy_of, refuse_lazy
from polyrhythm.base.streams import kept_generators, seeded_torch
from polyrhythm.base.tensor_names import named_parts, state_of
from polyrhythm.base.unharmed import unharmed
from polyrhythm.base.vectors import CPU
from polyrhythm.models.calling import outputs_in, structure_taken


def output_shape(model: nn.Module, inputs: Tensor) -> tuple[int, ...]:
    """The shape of what a model gives for a batch; arguments and errors as for `first_outputs`."""
    return tuple(first_outputs(model, inputs).shape)


def first_outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    """What a model gives for a batch; arguments and errors as for `probed`."""
    return probed(model, inputs)[0]


def probed(model: nn.Module, inputs: Tensor) -> tuple[Tensor, str]:
    """What a model gives for a batch, and of what kind that was; the model and all generators stay as they were.

    Args:
        model: any module; a copy of it runs, in eval mode.
        inputs: a small batch of samples, as training would give it. [B, *shape]

    Raises:
        UserError: the model cannot be run on these samples, gives something other than one tensor with a row per
            sample, or cannot be copied.
    """
    kind = type(model).__name__
    refuse_lazy(model)
    replica = copy_of(model, one_base=CPU)
    _refuse_other_values(model, replica)
    replica.eval()
    try:
        with torch.enable_grad(), kept_generators(), seeded_torch(0, "init", "probe"), unharmed(replica):
            found = replica(inputs)
    except UserError:
        raise
    except Exception as error:  # whatever a user's own forward raises, said in our words
        structure = structure_taken(model)
        dtype = str(inputs.dtype).removeprefix("torch.")
        what = f"shape {tuple(inputs.shape[1:])} and type {dtype}"
        raise UserError(
            f"{kind} could not be run on {len(inputs)} samples of {what if structure is None else structure.words}: "
            f"{type(error).__name__}: {error}",
            expected="a model that takes a batch of these samples",
            why="every client would fail in its first step",
            fix="choose a model for such samples, or change the data's transforms (padding, flattening, normalising)"
            if inputs.dtype == torch.float32 or structure is not None
            else "make the inputs float32, which most layers read: inputs.astype('float32') for arrays, .float() in a "
            "data set's transform; or choose a model for such samples",
        ) from error
    outputs = outputs_in(found)
    if not isinstance(outputs, Tensor):
        raise UserError(
            f"{kind} gives a {type(outputs).__name__}, not a tensor",
            expected="one tensor of outputs, a row per sample; or that as `.logits`, by the key 'logits' or first in a "
            "tuple",
            why="loss and metrics are computed from that tensor",
            fix="return only the outputs; a representation is read from inside the model, by its submodule's name",
        )
    if outputs.dim() == 0 or len(outputs) != len(inputs):
        raise UserError(
            f"{kind} gives outputs of shape {tuple(outputs.shape)} for {len(inputs)} samples",
            expected=f"{len(inputs)} rows, one per sample",
            why="losses and metrics are counted per sample",
            fix="keep the batch as the first axis in forward",
        )
    _refuse_late_layers(model, replica)
    _refuse_ties(model, outputs)
    return outputs.detach(), type(found).__name__


def woken(model: nn.Module) -> tuple[str, ...]:
    """The parts of a model in training mode that are in evaluation mode, and do not stay so in training."""
    if not model.training or all(part.training for part in model.modules()):
        return ()
    trained = dict(named_parts(copy_of(model, one_base=CPU).train()))
    return tuple(name for name, part in named_parts(model) if not part.training and trained[name].training)


def _refuse_other_values(model: nn.Module, replica: nn.Module) -> None:
    """Refuses a model whose copy has other weights or buffers."""
    before, after = state_of(model), state_of(replica)
    for name, tensor in before.items():
        other = after.get(name)
        if other is None or other.shape != tensor.shape or not _same(tensor, other):
            raise UserError(
                f"{name} of a copy of {type(model).__name__} is not {name} of the model that it is a copy of",
                expected="a module whose deep copy is the same",
                why="every client trains a copy, and would begin from other weights than you gave",
                fix="leave out its __deepcopy__, __reduce__ or __setstate__, or have them copy all weights and buffers",
            )


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other) or bool(torch.allclose(one.to_dense(), other.to_dense(), 0.0, 0.0, equal_nan=True))


def _refuse_late_layers(model: nn.Module, replica: nn.Module) -> None:
    """Refuses a model that has other parameters after its first batch than before."""
    before, after = (dict(m.named_parameters()) for m in (model, replica))
    if late := next((name for name in after if name not in before), None):
        raise UserError(
            f"{type(model).__name__} makes its parameter {late} in its first batch",
            expected="a model whose parameters all exist",
            why="the weights are laid out once, before the first client trains, and this one would never be trained",
            fix="make the layer in __init__; or run one batch through the model, and give that model",
        )


def _refuse_ties(model: nn.Module, outputs: Tensor) -> None:
    """Refuses a model whose copy computes with the weights of the model itself."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not outputs.requires_grad or not named:
        return
    found = torch.autograd.grad(outputs.sum(), [p for _, p in named], allow_unused=True)
    name = next((name for (name, _), gradient in zip(named, found, strict=True) if gradient is not None), None)
    if name is not None:
        raise UserError(
            f"a copy of {type(model).__name__} computes with {name} of the model that it is a copy of",
            expected="a module whose deep copy stands on its own",
            why="every client trains a copy, and these weights would never be trained",
            fix="define forward in a class in place of a function or bound method that was kept as an attribute, "
            "since those go on holding the first module",
        )
