"""Inputs that are several arrays, by name or in order, and sequences of different lengths.

A sample of several arrays is held, dealt out and cut into batches as one row of bytes; only the model's own pass sees
the arrays again (`Structure.unpack`). So all that reads samples by their index, on this machine, in worker processes
and at nodes of a real federation, reads these as well, and to the last bit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Self, final

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.data.given import plain_array

Fields = Mapping[str, Any]
"""Arrays by name; those of a tuple are named by their place: "0", "1", …"""
Shape = tuple[int, ...] | dict[str, tuple[int, ...]] | tuple[tuple[int, ...], ...]
"""Of one sample's array, or of all of its arrays, by name or in order."""
_COUNT = torch.int64.itemsize


@final
@dataclass(frozen=True, kw_only=True)
class Padding(Settings):
    """How sequences of different lengths become rows of one length: by a value behind their end.

    The first axis of a sample's array is the one along which its length may differ.

    Args:
        value: that is put there; or one for each array whose lengths differ, by name (or place, as text).
        to: "longest" of all samples; "batch", the longest of those that a model is given at once, which is quicker, and
            the same for a model that does not look at what is put there; or a length, which real nodes must agree on.
        mask: name of one more array, 1 where the first of these arrays has entries of its own and 0 behind its end;
            "" for none. Of a tuple it is the last.
    """

    value: float | Mapping[str, float] = 0.0
    to: Literal["longest", "batch"] | Annotated[int, Ge(1)] = "longest"
    mask: str = ""

    def of(self, name: str) -> float | None:
        """The value of one array; None if its lengths may not differ."""
        return self.value.get(name) if isinstance(self.value, Mapping) else self.value


class Field(NamedTuple):
    """One array of a sample.

    Attributes:
        name: by which the model takes it, or its place.
        dtype: of torch, such as "int64".
        shape: of one sample; of a padded one, with the length that all have in memory.
        fill: what is behind the end of shorter ones; None where all have one length.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    fill: float | None = None

    @property
    def type(self) -> torch.dtype:
        """The type of its numbers."""
        found: torch.dtype = getattr(torch, self.dtype)
        return found

    @property
    def bytes(self) -> int:
        """What it takes in a row, with its length if it has one."""
        return math.prod(self.shape) * self.type.itemsize + (_COUNT if self.fill is not None else 0)

    @property
    def words(self) -> str:
        """It in words: "input_ids int64 [12]"."""
        return f"{self.name} {self.dtype} [{', '.join(map(str, self.shape))}]"


@final
@dataclass(frozen=True, kw_only=True)
class Structure:
    """The arrays that a model is given for a sample.

    Args:
        fields: in order, the mask apart.
        keyed: whether the model takes them by name, `model(**arrays)`; else in order, `model(*arrays)`.
        mask: name of the mask of the first padded field; "" for none.
        trims: whether padding ends with the longest sample of a batch.
    """

    fields: tuple[Field, ...]
    keyed: bool
    mask: str = ""
    trims: bool = False

    @property
    def width(self) -> int:
        """Bytes of a sample."""
        return sum(field.bytes for field in self.fields)

    @property
    def words(self) -> tuple[str, ...]:
        """The arrays in words, one by one."""
        padded = [f"{f.words}{'' if f.fill is None else f', padded with {f.fill:g}'}" for f in self.fields]
        return (*padded, *([f"{self.mask}, the mask"] if self.mask else []))

    @property
    def shapes(self) -> Shape:
        """What a builder is given as `shape`: those of all arrays, by name or in order."""
        found = {field.name: field.shape for field in self.fields}
        if self.mask:
            found[self.mask] = self._padded.shape[:1]
        return found if self.keyed else tuple(found.values())

    def widened(self, columns: Mapping[str, Tensor | Sequence[Any]]) -> Structure:
        """The same for samples that may be longer, where padding ends with the longest of a batch, and of those alone.

        Args:
            columns: as for `pack`.
        """
        if not self.trims:
            return self
        longest = {
            name: column.shape[1] if isinstance(column, Tensor) and column.dim() > 1 else max(map(_length, column))
            for name, column in columns.items()
            if len(column)
        }
        fields = [
            f if f.fill is None else f._replace(shape=(max(f.shape[0], longest.get(f.name, 0)), *f.shape[1:]))
            for f in self.fields
        ]
        return dataclasses.replace(self, fields=tuple(fields))

    @property
    def _padded(self) -> Field:
        return next(field for field in self.fields if field.fill is not None)

    def pack(self, columns: Mapping[str, Tensor | Sequence[Any]], first: int = 0) -> Tensor:
        """Samples as rows of bytes, uint8 [n, width].

        Args:
            columns: of each array, by name, all samples' in one tensor [n, ...], or each sample's own.
            first: number of the first sample, for words.

        Raises:
            UserError: other arrays than the first sample had, of another shape or type, or with NaN in them.
        """
        _check_names(columns, [field.name for field in self.fields], first)
        count, begin = len(next(iter(columns.values()))), 0
        rows = torch.empty(count, self.width, dtype=torch.uint8)
        for field in self.fields:
            column, cells = columns[field.name], rows[:, begin : begin + field.bytes]
            begin += field.bytes
            if isinstance(column, Tensor):
                _fill(cells, column, field, first, None)
            else:
                for place, array in enumerate(column):
                    _fill(cells[place : place + 1], as_tensor(array, field.name)[None], field, first + place, place)
        return rows

    def pack_samples(self, inputs: Sequence[Any], first: int = 0) -> Tensor:
        """The same of samples as items have them: mappings, tuples or sequences."""
        names, samples = [field.name for field in self.fields], [fields_of(value) for value in inputs]
        for place, sample in enumerate(samples):
            _check_names(sample, names, first + place)
        return self.pack({name: [sample[name] for sample in samples] for name in names}, first)

    def unpack(self, rows: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """What a model is called with for a batch, uint8 [B, width]: arrays in order, and arrays by name."""
        found, begin = dict[str, Tensor](), 0
        for field in self.fields:
            cells, lengths = rows[:, begin : begin + field.bytes], None
            begin += field.bytes
            if field.fill is not None:
                lengths, cells = _as_numbers(cells[:, :_COUNT], torch.int64), cells[:, _COUNT:]
            values = _as_numbers(cells, field.type).reshape(len(rows), *field.shape)
            if lengths is not None:
                most = max(1, int(lengths.max())) if self.trims and len(rows) else field.shape[0]
                values = values[:, :most]
                if self.mask and self.mask not in found and field is self._padded:
                    masked = (torch.arange(most, device=rows.device) < lengths[:, None]).to(torch.int64)
            found[field.name] = values
        if self.mask:
            found[self.mask] = masked
        return ((), found) if self.keyed else (tuple(found.values()), {})

    def plain(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**dataclasses.asdict(self), "fields": [list(field) for field in self.fields]}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """It, from plain data.

        Raises:
            ValueError, KeyError, TypeError: that is no such data.
        """
        fields = tuple(Field(str(n), str(d), tuple(map(int, s)), f) for n, d, s, f in plain["fields"])
        return cls(fields=fields, keyed=bool(plain["keyed"]), mask=str(plain["mask"]), trims=bool(plain["trims"]))


def is_structured(value: Any) -> bool:
    """Whether an item's input is several arrays, and not one."""
    return isinstance(value, Mapping) or (isinstance(value, tuple) and not isinstance(value, torch.Size))


def fields_of(value: Any) -> dict[str, Any]:
    """The arrays of one sample by name, or by place."""
    if isinstance(value, Mapping):
        return {str(name): array for name, array in value.items()}
    return {str(place): array for place, array in enumerate(value)} if is_structured(value) else {"0": value}


def structure_of(samples: Iterable[Any], padding: Padding | None) -> Structure:
    """What samples consist of; the first decides, and all of them where they are padded.

    Args:
        samples: of each its input: a mapping, a tuple, or one sequence.
        padding: of sequences of different lengths; None where all have one.

    Raises:
        UserError: samples without arrays, or padding that fits none of them.
    """
    given = iter(samples)
    first = next(given)
    arrays = {name: as_tensor(array, name) for name, array in fields_of(first).items()}
    if not arrays:
        raise _unfit("samples of no array at all", "one array or more in each", "give (input, target) with an input")
    longest = {name: len(t) for name, t in arrays.items() if padding and padding.of(name) is not None and t.dim()}
    if padding is not None:
        _check_padding(padding, arrays, longest)
        if not isinstance(padding.to, int):
            for number, sample in enumerate(given, start=1):
                other = fields_of(sample)
                _check_names(other, list(arrays), number)
                longest |= {name: max(known, _length(other[name])) for name, known in longest.items()}
        else:
            longest = dict.fromkeys(longest, padding.to)
    fields = []
    for name, tensor in arrays.items():
        shape = (longest[name], *tensor.shape[1:]) if name in longest else tuple(tensor.shape)
        fill = padding.of(name) if padding is not None and name in longest else None
        fields.append(Field(name, str(tensor.dtype).removeprefix("torch."), shape, fill))
    return Structure(
        fields=tuple(fields),
        keyed=isinstance(first, Mapping),
        mask="" if padding is None else padding.mask,
        trims=padding is not None and padding.to == "batch",
    )


def as_tensor(array: Any, name: str) -> Tensor:
    """One array of a sample, floats of lists as float32.

    Raises:
        UserError: it is none, or of something else than numbers.
    """
    if isinstance(array, Tensor) and array.layout is torch.strided and not array.is_meta and not array.is_quantized:
        return array.detach().cpu()
    if isinstance(array, (bool, int, float)) and not isinstance(array, np.generic):
        return torch.as_tensor(array)
    values = plain_array(array, f"inputs {name!r}")
    if values.dtype.kind not in "buif":
        raise _unfit(f"{name} of {values.dtype}", "numbers", "make numbers of it, such as tokens of text")
    if not isinstance(array, np.ndarray) and values.dtype == np.float64:
        return torch.from_numpy(values).float()
    return torch.from_numpy(values)


def _as_numbers(cells: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as the numbers that they are, in one row."""
    # A clone begins where numbers may begin; a slice of a single row is contiguous and need not.
    return cells.clone(memory_format=torch.contiguous_format).reshape(-1).view(dtype)


def _length(array: Any) -> int:
    return len(array) if hasattr(array, "__len__") else 0


def _fill(cells: Tensor, values: Tensor, field: Field, first: int, place: int | None) -> None:
    """Writes one array of some samples, [n, ...], to where it is held, uint8 [n, bytes]."""
    values = _typed(values, field, "the samples" if place is None else f"sample {first}")
    if field.fill is not None:
        length = values.shape[1]
        cells[:, :_COUNT] = torch.tensor([length]).view(torch.uint8)
        whole = torch.full((len(values), *field.shape), field.fill, dtype=field.type)
        whole[:, :length] = values
        values, cells = whole, cells[:, _COUNT:]
    flat = values.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
    cells.copy_(flat.reshape(len(values), cells.shape[1]))


def _typed(values: Tensor, field: Field, whose: str) -> Tensor:
    """Arrays of some samples as their field has them."""
    shape, padded = tuple(values.shape[1:]), field.fill is not None
    fits = shape[1:] == field.shape[1:] and len(shape) == len(field.shape) if padded else shape == field.shape
    if not fits or (padded and shape[0] > field.shape[0]):
        wanted = f"[{', '.join(map(str, field.shape))}]" + (" at most" if padded else "")
        raise _unfit(
            f"{field.name} of shape [{', '.join(map(str, shape))}] in {whose}",
            f"{wanted}, as the first samples have",
            "cut it to that length, or give a larger `to`"
            if padded and len(shape) == len(field.shape)
            else "padding=pr.data.Padding(value=0) fills up sequences of different lengths; or make all of one shape",
        )
    kinds = [_kind(values.dtype), _kind(field.type)]
    if kinds[0] != kinds[1]:
        dtype = str(values.dtype).removeprefix("torch.")
        raise _unfit(f"{field.name} of {dtype} in {whose}", f"{field.dtype}, as the first samples have", "convert it")
    values = values.to(field.type)
    if values.is_floating_point() and not bool(values.isfinite().all()):
        fix = "leave such samples out, or fill in the values"
        raise _unfit(f"{field.name} with NaN or infinity in {whose}", "finite numbers", fix)
    return values


def _kind(dtype: torch.dtype) -> str:
    """What does not stand for one another: numbers with fractions, whole ones, bytes, truth values."""
    if dtype.is_floating_point:
        return "float"
    return str(dtype) if dtype in (torch.bool, torch.uint8) else "whole"


def _check_names(sample: Fields, names: Sequence[str], number: int) -> None:
    if sample.keys() != set(names):
        missing, more = [n for n in names if n not in sample], [n for n in sample if n not in names]
        words = [f"no {', '.join(missing)}"] if missing else []
        words += [f"{', '.join(more)} beside"] if more else []
        raise _unfit(
            f"sample {number} with {' and '.join(words)}",
            f"the arrays of the first one: {', '.join(names)}",
            "give every sample the same arrays",
        )


def _check_padding(padding: Padding, arrays: Mapping[str, Tensor], padded: Mapping[str, int]) -> None:
    named = padding.value if isinstance(padding.value, Mapping) else {}
    if (strange := [name for name in named if name not in padded]) or not padded:
        raise _unfit(
            f"padding of {', '.join(strange) or 'samples of single numbers'}",
            f"arrays of the samples: {', '.join(arrays)}",
            "name arrays that samples have, by their place those of a tuple",
        )
    if padding.mask in arrays:
        raise _unfit(f"a mask called {padding.mask}", "a name that no array has", "leave it out, as it is there")


def _unfit(found: str, expected: str, fix: str) -> UserError:
    return UserError(
        found, expected=expected, why="samples are cut into batches array by array, and a model is given these", fix=fix
    )
