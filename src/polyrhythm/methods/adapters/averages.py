"""Averages of adapters: with the rest put into the base, stacked into the base, decomposed, or weighed by length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from polyrhythm.base.streams import stream
from polyrhythm.methods.adapters.base import AdapterAverage, Factors, Heard


@final
@dataclass(frozen=True, kw_only=True)
class ResidualInBase(AdapterAverage):
    """The mean of A and of B, and in the base what these miss of the mean of B A.

    Of each adapted layer, with B and A the means that the next version has,

        W <- W + s (sum_i p_i B_i A_i - B A),

    so that what it computes with is exactly the mean of what clients had. Neutral situation: clients that end with the
    same factors, or one factor that nobody has changed: the rest is zero to rounding. No state.

    Clients are sent d k numbers of each adapted layer with each visit, since the base has changed, and send r (d + k)
    back; a visit holds both in memory. The paper sends factors of the rest, which are shorter while clients times
    rank are fewer than d k / (d + k) and nobody misses a version.

    Reference: Singhal, Ponkshe, Vepakomma, "FedEx-LoRA: Exact Aggregation for Federated and Efficient Fine-Tuning of
    Large Language Models", ACL 2025.
    """

    moves_base = True

    def after(self, heard: Heard) -> Factors:
        mean, residual = heard.mean, heard.before.residual
        assert residual is not None
        # Of the factors as they will be: with the rounding of the weights' type.
        b, a = mean.b, mean.a
        return Factors(b=b, a=a, residual=residual + heard.product() - heard.adapter.scale * (b @ a))


@final
@dataclass(frozen=True, kw_only=True)
class StackInBase(AdapterAverage):
    """The adapters of all clients side by side, merged into the base; then new ones.

    With [p_1 A_1; …; p_K A_K] under each other and [B_1, …, B_K] beside each other, of each adapted layer

        W <- W + s [B_1, …, B_K] [p_1 A_1; …; p_K A_K],

    which is exactly the mean of what clients had, whatever their ranks. The next version begins with B = 0 and an A
    that is drawn anew, uniformly from ±1/√k. Neutral situation: a version in which no B has moved from zero leaves what
    is computed as it was. No state; bytes and memory as those of `residual_in_base`: the paper sends the stack,
    r (d + k) numbers for each client that was heard, and where that is more than d k, what is sent here is shorter.

    Reference: Wang et al., "FLoRA: Federated Fine-Tuning Large Language Models with Heterogeneous Low-Rank
    Adaptations", NeurIPS 2024.
    """

    moves_base = True
    new_coordinates = True

    def after(self, heard: Heard) -> Factors:
        before = heard.before
        assert before.residual is not None
        drawn = stream(heard.seed, "init", "adapter", heard.number, heard.version)
        bound = 1 / math.sqrt(before.a.shape[1])
        a = torch.from_numpy(drawn.uniform(-bound, bound, size=tuple(before.a.shape)))
        return Factors(b=torch.zeros_like(before.b), a=a, residual=before.residual + heard.product())


@final
@dataclass(frozen=True, kw_only=True)
class DecomposedAverage(AdapterAverage):
    """The mean of B A itself, and its best approximation of the adapters' rank.

    With U S V' the singular value decomposition of sum_i p_i s B_i A_i, the next version has the first r of it,

        B = U_r (S_r / s)^½,    A = (S_r / s)^½ V_r',

    whose columns and rows go by size, so that a client of a smaller rank holds the best approximation of that rank. It
    misses the length of S beyond r. Neutral situation: one client, or several with the same B A: what is computed stays
    as it was, to rounding, in other factors. No state, no bytes: QR of the stacks, and a decomposition of K r × K r.

    How S is shared between the factors is free: half to each keeps both as long as the other.

    Reference: Bai, Chen, Qian, Yao, Li, "Federated Fine-tuning of Large Language Models under Heterogeneous Tasks and
    Client Resources" (FlexLoRA), NeurIPS 2024.
    """

    new_coordinates = True

    def after(self, heard: Heard) -> Factors:
        left = torch.cat([c.b * share for c, share in zip(heard.clients, heard.shares, strict=True)], 1)
        b, a = decomposed(left, torch.cat([c.a for c in heard.clients], 0), heard.adapter.rank)
        return Factors(b=b, a=a)


def decomposed(left: Tensor, right: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """B [d, r] and A [r, k] of the best approximation of a product of rank r, equally long, by size.

    Args:
        left: [d, m].
        right: [m, k].
        rank: r; rows and columns beyond what there is are zero.
    """
    (q, upper), (other, lower) = torch.linalg.qr(left), torch.linalg.qr(right.t())
    u, sizes, v = torch.linalg.svd(upper @ lower.t(), full_matrices=False)
    u, v = q @ u[:, :rank], v[:rank] @ other.t()
    # Signs are free: that of the largest number of a column is made positive, so that libraries agree.
    signs = u.gather(0, u.abs().argmax(0, keepdim=True)).sign()
    signs[signs == 0] = 1.0
    root = sizes[:rank].sqrt()
    b, a = u * signs * root, v * signs.t() * root[:, None]
    missing = rank - b.shape[1]
    if missing > 0:
        b = torch.cat([b, b.new_zeros(len(b), missing)], 1)
        a = torch.cat([a, a.new_zeros(missing, a.shape[1])], 0)
    return b, a


@final
@dataclass(frozen=True, kw_only=True)
class LengthWeightedAverage(AdapterAverage):
    """The means of zero-padded A and B, in which each client counts by the length of its B A.

    Of each adapter, with w_i = p_i ‖B_i A_i‖_F / sum_j p_j ‖B_j A_j‖_F over clients,

        A = sum_i w_i A_i,    B = sum_i w_i B_i,

    where rows and columns beyond a client's rank are zero. With `by_length` off, w_i = p_i. Neutral situation: clients
    of one rank whose products are as long as each other's: plain averaging, to rounding. Clients that have not moved B
    from zero leave the weights p_i. No state, no bytes.

    Departures: p_i, which the paper has equal for all, counts as well, so that with `equal` it is the paper's. Its
    pruning of ranks in local training is a setting of `rank_prefix`: prune_to.

    Args:
        by_length: whether lengths count.

    Reference: Cho, Liu, Xu, Fahrezi, Joshi, "Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation
    Models", EMNLP 2024.
    """

    by_length: bool = True

    def after(self, heard: Heard) -> Factors:
        lengths = [float(torch.linalg.matrix_norm(c.b @ c.a)) if self.by_length else 1.0 for c in heard.clients]
        claims = [share * length for share, length in zip(heard.shares, lengths, strict=True)]
        whole = math.fsum(claims)
        weights = [claim / whole for claim in claims] if whole > 0 else list(heard.shares)
        pairs = list(zip(heard.clients, weights, strict=True))
        b, a = torch.zeros_like(heard.before.b), torch.zeros_like(heard.before.a)
        for client, weight in pairs:
            b, a = b + weight * client.b, a + weight * client.a
        return Factors(b=b, a=a)
