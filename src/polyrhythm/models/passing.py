"""What torch's functions do to the dimensions of tensors: which of the results' are which of the arguments'.

One rule for each kind of function. What a rule cannot say exactly it keeps whole; a function without a rule is refused
by its name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from polyrhythm.models.calls import Refused, Rule, Seen, results
from polyrhythm.models.unifying import Cat, Dim, Dims, axes_in, fixed, in_units, keep, long, meet, regrouped, resolved


def _same(seen: Seen) -> Sequence[Dims]:
    """One number from one number."""
    return [seen.dims(seen.first)]


def _together(seen: Seen) -> Sequence[Dims]:
    """One number from the numbers of several tensors in the same place, which are stretched to the same shape."""
    count = seen.out.dim()
    found: list[Dim] = [()] * count
    for tensor in (a for a in (*seen.args, *seen.kwargs.values()) if isinstance(a, Tensor)):
        dims = seen.dims(tensor)
        for place, dim in enumerate(dims, count - len(dims)):
            if long(dim) == 1:
                continue
            if found[place]:
                meet(found[place], dim)
            else:
                found[place] = dim
    return [tuple(found)]


def _linear(seen: Seen) -> Sequence[Dims]:
    inputs, weight, bias = seen.dims(seen.args[0]), seen.dims(seen.arg(1, "weight")), seen.arg(2, "bias")
    meet(inputs[-1], weight[1])
    if bias is not None:
        meet(weight[0], seen.dims(bias)[0])
    return [(*inputs[:-1], weight[0])]


def _convolution(seen: Seen) -> Sequence[Dims]:
    inputs, weight, bias = seen.dims(seen.args[0]), seen.dims(seen.arg(1, "weight")), seen.arg(2, "bias")
    spatial = len(weight) - 2
    channels, groups, rows = inputs[-spatial - 1], seen.arg(6, "groups", 1), weight[0]
    if groups == 1:
        meet(channels, weight[1])
    elif groups == long(channels):  # filters of their own for each channel
        many = long(rows) // groups
        meet(rows, (*channels, many) if many > 1 else channels)
    else:
        keep(channels)
        keep(rows)
    if bias is not None:
        meet(rows, seen.dims(bias)[0])
    return [(*inputs[: -spatial - 1], rows, *map(fixed, seen.out.shape[-spatial:]))]


def _transposed(seen: Seen) -> Sequence[Dims]:
    inputs, weight, bias = seen.dims(seen.args[0]), seen.dims(seen.arg(1, "weight")), seen.arg(2, "bias")
    spatial = len(weight) - 2
    channels = inputs[-spatial - 1]
    rows = weight[1]
    if seen.arg(6, "groups", 1) == 1:
        meet(channels, weight[0])
    else:
        keep(channels), keep(weight[0]), keep(rows)
        rows = fixed(seen.out.shape[-spatial - 1])
    if bias is not None:
        meet(rows, seen.dims(bias)[0])
    return [(*inputs[: -spatial - 1], rows, *map(fixed, seen.out.shape[-spatial:]))]


def _norm_of_channels(seen: Seen) -> Sequence[Dims]:
    """BatchNorm and InstanceNorm: every channel by itself."""
    dims = seen.dims(seen.args[0])
    for place, name in enumerate(("running_mean", "running_var", "weight", "bias"), 1):
        tensor = seen.arg(place, name)
        if isinstance(tensor, Tensor):
            meet(dims[1], seen.dims(tensor)[0])
    return [dims]


def _norm_of_groups(seen: Seen) -> Sequence[Dims]:
    """GroupNorm: whole groups, and as many channels in each as before; one group of all is as wide as they are."""
    dims, groups = seen.dims(seen.args[0]), seen.arg(1, "num_groups")
    for place, name in enumerate(("weight", "bias"), 2):
        tensor = seen.arg(place, name)
        if isinstance(tensor, Tensor):
            meet(dims[1], seen.dims(tensor)[0])
        elif groups > 1:
            keep(dims[1])  # such a layer has nothing that says how many groups are left
    if groups > 1:
        in_units(dims[1], long(dims[1]) // groups)
    return [dims]


def _norm_of_layers(seen: Seen) -> Sequence[Dims]:
    dims, over = seen.dims(seen.args[0]), len(seen.arg(1, "normalized_shape"))
    tensors = [t for t in (seen.arg(2, "weight"), seen.arg(3, "bias")) if isinstance(t, Tensor)]
    for tensor in tensors:
        for one, other in zip(dims[-over:], seen.dims(tensor), strict=True):
            meet(one, other)
    if over > 1 or not tensors:
        for dim in dims[-over:]:
            keep(dim)
    return [dims]


def _windows(seen: Seen) -> Sequence[Dims]:
    """Pools and the like, over what lies in space: a dimension that keeps its length is as it was."""
    dims, given = seen.dims(seen.first), tuple(map(long, seen.dims(seen.first)))
    found: list[Dims] = []
    for tensor in results(seen.out):
        own: list[Dim] = []
        for place, size in enumerate(tensor.shape):
            spatial = place > max(1, len(given) - 4) if len(given) > 3 else place == len(given) - 1
            if spatial or size != given[place]:
                keep(dims[place])
                own.append(fixed(size))
            else:
                own.append(dims[place])
        found.append(tuple(own))
    return found


def _across(seen: Seen) -> Sequence[Dims]:
    """What mixes neighbouring channels: these stay together."""
    dims = seen.dims(seen.first)
    return [(dims[0], keep(dims[1]), *dims[2:])]


def _reshaped(seen: Seen) -> Sequence[Dims]:
    dims, shape = seen.dims(seen.first), tuple(seen.out.shape)
    found = regrouped(dims, shape) if math.prod(shape) else ()
    if len(found) != len(shape):
        for dim in dims:
            keep(dim)
        found = tuple(map(fixed, shape))
    return [found]


def _permuted(seen: Seen) -> Sequence[Dims]:
    dims, order = seen.dims(seen.first), seen.args[1:] or (seen.kwargs["dims"],)
    if len(order) == 1 and not isinstance(order[0], int):
        order = tuple(order[0])
    return [tuple(dims[place] for place in order)]


def _transposed_dims(seen: Seen) -> Sequence[Dims]:
    dims = list(seen.dims(seen.first))
    one, other = seen.arg(1, "dim0"), seen.arg(2, "dim1")
    dims[one], dims[other] = dims[other], dims[one]
    return [tuple(dims)]


def _turned(seen: Seen) -> Sequence[Dims]:
    """`t`, `T`, `mT`."""
    dims = seen.dims(seen.first)
    return [(*dims[:-2], *reversed(dims[-2:]))]


def _joined(seen: Seen) -> Sequence[Dims]:
    tensors = seen.arg(0, "tensors")
    place = seen.arg(1, "dim", 0) % seen.out.dim()
    all_dims = [seen.dims(t) for t in tensors]
    found = list(all_dims[0])
    for dims in all_dims[1:]:
        for other, (one, two) in enumerate(zip(all_dims[0], dims, strict=True)):
            if other != place and long(one) > 1:
                meet(one, two)
    for dims in all_dims:  # each is read where what they make together is
        for axis in axes_in(resolved(dims[place])):
            axis.met = True
    found[place] = (Cat(tuple(dims[place] for dims in all_dims)),)
    return [tuple(found)]


def _indexed(seen: Seen) -> Sequence[Dims]:
    """What is picked by plain numbers, slices and ellipses; a dimension that is cut into is kept whole."""
    dims, key = list(seen.dims(seen.first)), seen.args[1]
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(k is not None and k is not Ellipsis and not isinstance(k, (int, slice)) for k in keys):
        return _whole(seen)
    if Ellipsis in keys:
        place = keys.index(Ellipsis)
        taken = sum(k is not None for k in keys) - 1
        keys[place : place + 1] = [slice(None)] * (len(dims) - taken)
    keys += [slice(None)] * (len(dims) - sum(k is not None for k in keys))
    found: list[Dim] = []
    for k in keys:
        if k is None:
            found.append(())
            continue
        dim = dims.pop(0)
        if isinstance(k, int):
            keep(dim)
        elif k == slice(None):
            found.append(dim)
        else:
            keep(dim)
            found.append(fixed(len(range(*k.indices(long(dim))))))
    return [tuple(found)]


def _whole(seen: Seen) -> Sequence[Dims]:
    """Whatever goes in is kept whole, and what comes out."""
    for tensor in (t for t in (*seen.args, *seen.kwargs.values()) if isinstance(t, Tensor)):
        for dim in seen.dims(tensor):
            keep(dim)
    return [tuple(map(fixed, tensor.shape)) for tensor in results(seen.out)]


def _reduced(seen: Seen) -> Sequence[Dims]:
    """Sums and means over some dimensions, which are kept whole."""
    dims = seen.dims(seen.first)
    over = seen.arg(1, "dim")
    over = tuple(range(len(dims))) if over is None else over if isinstance(over, (tuple, list)) else (over,)
    gone = {place % len(dims) for place in over}
    keeps = bool(seen.arg(2, "keepdim", False))
    for place in gone:
        keep(dims[place])
    found = tuple(() if place in gone else dim for place, dim in enumerate(dims) if keeps or place not in gone)
    return [found for _ in results(seen.out)]


def _along(seen: Seen) -> Sequence[Dims]:
    """Softmax and the like, along a dimension that is kept whole."""
    dims = list(seen.dims(seen.first))
    place = seen.arg(1, "dim")
    dims[place] = keep(dims[place])
    return [tuple(dims)]


def _product(seen: Seen) -> Sequence[Dims]:
    one, other = seen.dims(seen.args[0]), seen.dims(seen.arg(1, "other") if len(seen.args) < 2 else seen.args[1])
    if len(one) < 2 or len(other) < 2:
        return _whole(seen)
    meet(one[-1], other[-2])
    count = seen.out.dim()
    found: list[Dim] = [()] * (count - 2)
    for dims in (one[:-2], other[:-2]):
        for place, dim in enumerate(dims, count - 2 - len(dims)):
            if long(dim) > 1 and found[place]:
                meet(found[place], dim)
            found[place] = found[place] or dim
    return [(*found, one[-2], other[-1])]


def _looked_up(seen: Seen) -> Sequence[Dims]:
    """An embedding: all its rows, and the width of what they hold."""
    places, weight = seen.args[0], seen.dims(seen.arg(1, "weight"))
    keep(weight[0])
    return [(*map(fixed, places.shape), weight[1])]


def _recurrent(seen: Seen) -> Sequence[Dims]:
    """LSTM, GRU and RNN: one width of hidden states for all layers, directions and gates."""
    given = seen.args
    if len(given) != 9 or (
        isinstance(given[1], Tensor) and not isinstance(given[1], (list, tuple)) and given[1].dim() == 1
    ):
        raise Refused("a recurrent layer over packed sequences")
    inputs, weights, biased, layers, both, first = given[0], given[2], given[3], given[4], given[7], given[8]
    ways, per = 2 if both else 1, 4 if biased else 2
    hidden = resolved(seen.dims(weights[1])[1])
    gates = weights[1].shape[0] // weights[1].shape[1]
    if len(weights) != per * ways * layers:
        raise Refused("a recurrent layer with a projection")
    dims = seen.dims(inputs)
    below = dims[-1]
    for layer in range(layers):
        for way in range(ways):
            into, back, *biases = weights[per * (layer * ways + way) :][:per]
            meet(seen.dims(into)[1], below)
            meet(seen.dims(back)[1], hidden)
            for tensor in (into, back, *biases):
                meet(seen.dims(tensor)[0], (gates, *resolved(hidden)) if gates > 1 else hidden)
        below = (ways, *resolved(hidden)) if ways > 1 else hidden
    outputs = (*dims[:-1], below)
    batch = dims[0 if first else 1] if len(dims) == 3 else ()
    last = (fixed(layers * ways), batch, hidden) if len(dims) == 3 else (fixed(layers * ways), hidden)
    return [outputs, *(last for _ in results(seen.out)[1:])]


def _stacked(seen: Seen) -> Sequence[Dims]:
    tensors = seen.arg(0, "tensors")
    place = seen.arg(1, "dim", 0) % seen.out.dim()
    found = list(seen.dims(tensors[0]))
    for tensor in tensors[1:]:
        for one, other in zip(found, seen.dims(tensor), strict=True):
            if long(one) > 1:
                meet(one, other)
    found.insert(place, fixed(len(tensors)))
    return [tuple(found)]


def _stretched(seen: Seen) -> Sequence[Dims]:
    dims = seen.dims(seen.first)
    dims = ((),) * (seen.out.dim() - len(dims)) + dims
    return [tuple(fixed(n) if long(dim) == 1 else dim for dim, n in zip(dims, seen.out.shape, strict=True))]


def _padded(seen: Seen) -> Sequence[Dims]:
    dims = seen.dims(seen.first)
    found = []
    for dim, size in zip(dims, seen.out.shape, strict=True):
        found.append(dim if long(dim) == size else fixed(size))
        if long(dim) != size:
            keep(dim)
    return [tuple(found)]


def _pieces(seen: Seen) -> Sequence[Dims]:
    """Chunks and splits along a dimension, which is kept whole."""
    dims = seen.dims(seen.first)
    place = seen.arg(2, "dim", 0) % len(dims)
    keep(dims[place])
    return [tuple(fixed(t.shape[i]) if i == place else dim for i, dim in enumerate(dims)) for t in results(seen.out)]


def _attention(seen: Seen) -> Sequence[Dims]:
    raise Refused("attention, whose heads are not followed")


def _for(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: Mapping[str, Rule] = {
    **_for(
        _same,
        "relu relu_ relu6 gelu silu mish selu celu elu elu_ leaky_relu leaky_relu_ hardtanh hardtanh_ hardswish "
        "sigmoid hardsigmoid tanh softplus softsign logsigmoid threshold dropout dropout_ dropout1d dropout2d "
        "dropout3d alpha_dropout feature_alpha_dropout clone contiguous to float double half bfloat16 type type_as "
        "detach data neg abs exp log log1p expm1 sqrt rsqrt square sin cos erf sign clamp clip clamp_ pow "
        "requires_grad requires_grad_ zeros_like ones_like nan_to_num identity cpu hardshrink softshrink tanhshrink "
        "rrelu",
    ),
    **_for(
        _together,
        "add radd iadd sub rsub isub subtract mul rmul imul multiply div rdiv idiv truediv rtruediv itruediv divide "
        "maximum minimum where lerp addcmul addcdiv eq ne lt le gt ge masked_fill prelu copy",
    ),
    **_for(_linear, "linear"),
    **_for(_convolution, "conv1d conv2d conv3d"),
    **_for(_transposed, "conv_transpose1d conv_transpose2d conv_transpose3d"),
    **_for(_norm_of_channels, "batch_norm instance_norm"),
    **_for(_norm_of_groups, "group_norm"),
    **_for(_norm_of_layers, "layer_norm rms_norm"),
    **_for(
        _windows,
        "max_pool1d max_pool2d max_pool3d _max_pool1d _max_pool2d _max_pool3d avg_pool1d avg_pool2d avg_pool3d "
        "lp_pool1d lp_pool2d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
        "adaptive_max_pool2d _adaptive_max_pool1d _adaptive_max_pool2d boolean_dispatch fn interpolate upsample "
        "max_pool1d_with_indices max_pool2d_with_indices",
    ),
    **_for(_across, "local_response_norm"),
    **_for(_reshaped, "view reshape flatten unflatten squeeze unsqueeze view_as reshape_as"),
    **_for(_permuted, "permute"),
    **_for(_transposed_dims, "transpose swapaxes swapdims"),
    **_for(_turned, "t T mT"),
    **_for(_joined, "cat concat concatenate"),
    **_for(_stacked, "stack"),
    **_for(_indexed, "getitem __getitem__"),
    **_for(_reduced, "mean sum amax amin max min prod var std logsumexp norm"),
    **_for(_along, "softmax log_softmax"),
    **_for(_product, "matmul __matmul__ mm bmm"),
    **_for(_looked_up, "embedding"),
    **_for(_recurrent, "lstm gru rnn_tanh rnn_relu"),
    **_for(_stretched, "expand expand_as broadcast_to"),
    **_for(_padded, "pad"),
    **_for(_pieces, "chunk split tensor_split"),
    **_for(_attention, "multi_head_attention_forward scaled_dot_product_attention"),
}
