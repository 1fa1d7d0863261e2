"""The runs whose numbers are held: every recipe, every part, and what else a run can be made of. Tiny, and by name.

Written with public names alone, so that the table outlives any move of modules. What cannot be said with them is said
to the command line, as text.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.methods.participation.critical_periods import ReleasedNorm
from polyrhythm.methods.privacy.adaptive_clip import Adaptive

SMALL: dict[str, Any] = {"cohort": 3, "epochs": 2, "batch": 5}
BASE = pr.fedavg(**SMALL)
ROLLING = BASE | pr.parts.rolling(concurrency=3)
ALT = pr.alt(cohort=3, epochs=3, batch=5, representation="logits", a=0.9, b=0.0)
DRIFT = pr.parts.stop_on_drift(representation="logits", a=0.9, b=0.0)
BUFFERED = ROLLING | pr.parts.buffer(size=2)
NEVER = pr.Checkpoint(every="never")
TIERS = pr.Fleet(devices=pr.fleet.Tiers())
COMES_AND_GOES = TIERS | pr.fleet.Markov(mean_on=0.4, mean_off=0.2)
QUICKSTART = "run --data digits --clients 20 --partition dirichlet(alpha=0.3) --method fedavg(cohort=10) --rounds 30"
KINDS_OF_FAULTS = (
    *("dropout", "crash", "slow", "nan", "inflate", "malformed", "lost", "duplicate", "stray", "corrupt"),
)


HOW = {setting.name for setting in dataclasses.fields(pr.Execution)}
"""The settings of a run that say how it is computed."""


@final
@dataclass(frozen=True, kw_only=True)
class Golden:
    """One run.

    Args:
        settings: of `pr.Experiment`, where they differ from `DEFAULTS`. A federation or a fleet may be what makes it.
        command: in place of them, arguments of the command line.
        follows: whether decisions follow numbers, such as losses, which other processors round otherwise. Only then
            may they differ from one kind of machine to the next.
    """

    settings: Mapping[str, Any] | None = None
    command: tuple[str, ...] = ()
    follows: bool = False

    @property
    def watches(self) -> bool:
        """Whether the order in which samples are read is held, too."""
        return (self.settings or {}).get("federation") is watched

    def experiment(self, **changes: Any) -> pr.Experiment:
        """What to do, made anew."""
        values = {
            key: value for key, value in {**DEFAULTS, **(self.settings or {})}.items() if key not in HOW
        } | changes
        for name in ("federation", "fleet"):
            if callable(made := values[name]):
                values[name] = made()
        return pr.Experiment(**values)

    def execution(self, **changes: Any) -> pr.Execution:
        """How to do it."""
        values = {key: value for key, value in {**DEFAULTS, **(self.settings or {})}.items() if key in HOW}
        return pr.Execution(**values | changes)


def points(count: int, features: int = 4, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Points around one centre for each class, in turn; by whole numbers, which no processor rounds."""
    place, feature = np.arange(count)[:, None], np.arange(features)
    centres = (place % classes * 379 + feature * 211) % 997
    scattered = (place * place * 7919 + place * feature * 104729 + feature * 31) % 1009
    return ((centres * 2 + scattered * 3 - 2500) / 1024).astype(np.float32), place[:, 0] % classes


def collection(**changes: Any) -> pr.data.Collection:
    """Such points, 24 of 114 of them to test on."""
    inputs, labels = points(114)
    values: dict[str, Any] = {"test": (inputs[90:], labels[90:]), "columns": {"writer": np.arange(90) // 4 % 7}}
    return pr.data.arrays(inputs[:90], labels[:90], **values | changes)


def dealt(data: pr.data.Collection, partition: pr.data.Partition | None = None, **options: Any) -> pr.data.Federation:
    """Six clients, of unequal sizes by default."""
    partition = partition or pr.data.QuantitySkew(alpha=2.0, min_size=5)
    clients = None if isinstance(partition, pr.data.ByColumn) else 6
    return pr.federate(data, partition, clients, 0, **options)


@functools.cache
def blobs() -> pr.data.Federation:
    return dealt(collection())


@functools.cache
def few_classes() -> pr.data.Federation:
    """Of three classes each client has two."""
    return dealt(collection(), pr.data.ClassesPerClient(classes=2))


@functools.cache
def held_out() -> pr.data.Federation:
    """With samples to choose by, and tests of the clients' own."""
    return dealt(collection(), validation=0.2, local_test=0.2)


@functools.cache
def digits() -> pr.data.Federation:
    return pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.5), 40, 0)


@functools.cache
def images(side: int = 28, channels: int = 1, augment: bool = False) -> pr.data.Federation:
    inputs, labels = points(60, channels * side * side)
    shaped = inputs.reshape(60, channels, side, side)
    data = pr.data.arrays(shaped[:48], labels[:48], test=(shaped[48:], labels[48:]), augment=augment)
    return dealt(data, pr.data.Iid())


@functools.cache
def tags() -> pr.data.Federation:
    inputs, labels = points(114)
    several = np.stack([labels == 0, labels != 1, inputs[:, 0] > 0], axis=1).astype(np.int64)
    return dealt(pr.data.arrays(inputs[:90], several[:90], test=(inputs[90:], several[90:]), task="multilabel"))


@functools.cache
def amounts() -> pr.data.Federation:
    inputs, _ = points(114)
    wanted = inputs[:, 0] / 2 - inputs[:, 1] + inputs[:, 2] * 2
    data = pr.data.arrays(inputs[:90], wanted[:90], test=(inputs[90:], wanted[90:]), task="regression")
    return dealt(data)


@functools.cache
def text() -> pr.data.Federation:
    codes = torch.tensor([(i * i + i // 3) % 7 for i in range(200)], dtype=torch.uint8)
    train, test = (pr.data.WindowSamples(codes, starts, 8) for starts in (torch.arange(60), torch.arange(120, 140)))
    classes = tuple("abcdefg")
    data = pr.data.Collection(name="text", task="next_character", classes=classes, train=train, test=test)
    return dealt(data, pr.data.Iid())


def signals() -> pr.data.Federation:
    inputs, labels = points(90, 24)
    return dealt(pr.data.arrays(inputs.reshape(90, 3, 8), labels, test=0.2), pr.data.Iid())


@functools.cache
def from_files() -> Path:
    """A folder of the small files that runs read."""
    folder = Path(tempfile.mkdtemp(prefix="golden-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    written = {
        "devices.csv": "client_id,computation_ms_per_sample,communication_kbps\n1,1.5,220\n2,0.4,1843\n3,3,90\n",
        "users.csv": "user,down_mean_kb_s,down_std_kb_s,up_mean_kb_s,up_std_kb_s\n0,7.5,3.4,4.9,2.8\n1,70,9,50,8\n",
        "bandwidth.csv": "trace,time_s,mbps\nbus,0,0.1\nbus,1,0.2\nbus,3,0\ntram,5,0.1\ntram,9,0.4\n",
        "arrivals.csv": "time,client\n" + "".join(f"{0.01 * i:.2f},{i * 5 % 6}\n" for i in range(60)),
        "presence.json": json.dumps({"1": {"active": [0, 0.5], "inactive": [0.3, 0.9], "finish_time": 1.0}}),
        "table.csv": "a,b,y\n"
        + "".join(f"{a:.3f},{b:.3f},{'pqr'[y]}\n" for (a, b), y in zip(*points(90, 2), strict=True)),
    }
    for name, content in written.items():
        (folder / name).write_text(content)
    np.savez(folder / "arrays.npz", x=points(90)[0], y=points(90)[1])
    return folder


class Normalised(nn.Module):
    """A perceptron with batch normalisation, whose running means travel as buffers."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.body(inputs)


class Watched(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Items that note down in which order they are read, in `READ`."""

    def __init__(self, begin: int, end: int) -> None:
        inputs, labels = points(end)
        self.items = [(torch.from_numpy(x), int(y)) for x, y in zip(inputs[begin:], labels[begin:], strict=True)]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        READ.append(index)
        return self.items[index]


READ: list[int] = []
"""Which items of `watched` were read since it was last made."""


def watched() -> pr.data.Federation:
    made = dealt(pr.data.dataset(Watched(0, 60), Watched(60, 66)))
    READ.clear()
    return made


def layers(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A small perceptron that the native engine takes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 12), nn.ReLU(), nn.Linear(12, outputs))


def exits(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Three small layers with an exit behind each."""
    return pr.models.build("mlp-exits", shape, outputs, hidden=(12, 12, 8))


def adapters(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A small perceptron with adapters of rank 4 on its first layer."""
    return pr.models.with_lora(layers, rank=4)(shape, outputs)


DEFAULTS: Mapping[str, Any] = {
    "federation": blobs,
    "model": "logistic",
    "recipe": BASE,
    "fleet": pr.Fleet(),
    "rounds": 4,
    "driver": "inline",
    "engine": "torch",
    "checkpoint": pr.Checkpoint(every=1, keep=3),
}

RECIPES: Mapping[str, dict[str, Any]] = {
    "ace": {"recipe": pr.ace(concurrency=4, epochs=1, batch=5), "fleet": TIERS, "rounds": 10},
    "aced": {"recipe": pr.aced(concurrency=4, within=3, epochs=1, batch=5), "fleet": TIERS, "rounds": 10},
    "afl": {"recipe": pr.afl(concurrency=4, buffer=2, batch=5), "fleet": TIERS},
    "alt": {"recipe": ALT, "model": layers},
    "apfl": {"recipe": pr.apfl(**SMALL, adapt=True), "federation": held_out, "model": Normalised},
    "area": {"recipe": pr.area(concurrency=3, epochs=1, batch=5), "fleet": TIERS, "rounds": 8},
    "ca2fl": {"recipe": pr.ca2fl(concurrency=4, buffer=2, epochs=1, batch=5), "fleet": TIERS, "rounds": 6},
    "cc_fedadagrad": {"recipe": pr.cc_fedadagrad(cohort=3, batch=5)},
    "cc_fedadam": {"recipe": pr.cc_fedadam(clock="event", cohort=3, batch=5), "fleet": TIERS},
    "cc_fedams": {"recipe": pr.cc_fedams(cohort=3, batch=5)},
    "cc_fedavg": {"recipe": pr.cc_fedavg(cohort=3, batch=5)},
    "cc_fedsgd": {"recipe": pr.cc_fedsgd(cohort=3, batch=5, buffer=2)},
    "cc_fedyogi": {"recipe": pr.cc_fedyogi(cohort=3, batch=5, spread=1)},
    "ccfl": {"recipe": pr.ccfl(cohort=3, steps=3, batch=5), "rounds": 6},
    "centralised": {"recipe": pr.centralised(epochs=1, batch=10, momentum=0.9)},
    "clustered_sampling": {"recipe": pr.clustered_sampling(**SMALL)},
    "curriculum_fl": {"recipe": pr.curriculum_fl(**SMALL)},
    "depthfl": {"recipe": pr.depthfl(**SMALL, depth=(1, 2, 3)), "model": exits},
    "fedit": {"recipe": pr.fedit(**SMALL), "model": adapters},
    "ffa_lora": {"recipe": pr.ffa_lora(**SMALL), "model": adapters},
    "rolora": {"recipe": pr.rolora(**SMALL), "model": adapters},
    "fedsa_lora": {"recipe": pr.fedsa_lora(**SMALL), "federation": held_out, "model": adapters},
    "fedex_lora": {"recipe": pr.fedex_lora(**SMALL), "model": adapters},
    "flora": {"recipe": pr.flora(**SMALL, rank=(4, 2, 1)), "model": adapters},
    "flexlora": {"recipe": pr.flexlora(**SMALL, rank=(4, 2)), "model": adapters},
    "hetlora": {"recipe": pr.hetlora(**SMALL, rank=(4, 1)), "model": adapters},
    "divfl": {"recipe": pr.divfl(**SMALL)},
    "f3ast": {"recipe": pr.f3ast(**SMALL, beta=0.2), "fleet": COMES_AND_GOES, "rounds": 6},
    "fadas": {"recipe": pr.fadas(concurrency=4, buffer=1, epochs=1, batch=5), "fleet": TIERS, "rounds": 10},
    "ditto": {"recipe": pr.ditto(**SMALL), "federation": held_out},
    "fedala": {"recipe": pr.fedala(**SMALL, rate=5.0), "federation": held_out, "model": layers},
    "fedadagrad": {"recipe": pr.fedadagrad(**SMALL)},
    "fedadam": {"recipe": pr.fedadam(**SMALL)},
    "fedams": {"recipe": pr.fedams(**SMALL)},
    "fedasync": {"recipe": pr.fedasync(concurrency=3, epochs=1, batch=5), "fleet": TIERS, "rounds": 8},
    "fedau": {"recipe": pr.fedau(**SMALL, cutoff=2), "rounds": 6},
    "fedavg": {"recipe": BASE},
    "fedavg_ft": {"recipe": pr.fedavg_ft(**SMALL, tuning=1), "federation": held_out},
    "fedavgm": {"recipe": pr.fedavgm(**SMALL)},
    "fedawe": {"recipe": pr.fedawe(**SMALL), "fleet": COMES_AND_GOES, "rounds": 6},
    "fedbabu": {"recipe": pr.fedbabu(**SMALL, tuning=1), "federation": held_out, "model": layers},
    "fedbn": {"recipe": pr.fedbn(**SMALL), "federation": held_out, "model": Normalised},
    "fedbuff": {"recipe": pr.fedbuff(concurrency=4, buffer=2, epochs=2, batch=5), "fleet": TIERS, "rounds": 6},
    "fedcm": {"recipe": pr.fedcm(**SMALL, alpha=0.5)},
    "fedcl": {"recipe": pr.fedcl(**SMALL), "rounds": 6},
    "feddyn": {"recipe": pr.feddyn(**SMALL)},
    "fedexp": {"recipe": pr.fedexp(**SMALL)},
    "fedlalr": {"recipe": pr.fedlalr(**SMALL)},
    "fednova": {"recipe": pr.fednova(**SMALL, momentum=0.5)},
    "fedper": {"recipe": pr.fedper(**SMALL), "federation": held_out, "model": layers},
    "fedproto": {"recipe": pr.fedproto(**SMALL), "federation": held_out, "model": layers},
    "fedprox": {"recipe": pr.fedprox(**SMALL, mu=0.1)},
    "fedrep": {"recipe": pr.fedrep(**SMALL, head_epochs=1), "federation": held_out, "model": layers},
    "fedstale": {"recipe": pr.fedstale(**SMALL)},
    "fedvarp": {"recipe": pr.fedvarp(**SMALL)},
    "fedyogi": {"recipe": pr.fedyogi(**SMALL)},
    "knn_per": {"recipe": pr.knn_per(**SMALL), "federation": held_out, "model": Normalised},
    "lg_fedavg": {"recipe": pr.lg_fedavg(**SMALL), "federation": held_out, "model": layers},
    "federated_dropout": {"recipe": pr.federated_dropout(**SMALL, ratio=0.5), "model": layers},
    "fedrolex": {"recipe": pr.fedrolex(**SMALL, ratio=(1.0, 0.5)), "model": layers},
    "fiarse": {"recipe": pr.fiarse(**SMALL, ratio=(1.0, 0.5, 0.25)), "model": layers},
    "heterofl": {"recipe": pr.heterofl(**SMALL, ratio=(1.0, 0.5, 0.25)), "model": layers},
    "local_only": {"recipe": pr.local_only(cohort=6, epochs=1, batch=5), "federation": held_out},
    "mifa": {"recipe": pr.mifa(**SMALL)},
    "moon": {"recipe": pr.moon(**SMALL, layer="logits"), "model": layers},
    "oort": {"recipe": pr.oort(**SMALL), "fleet": TIERS, "rounds": 6},
    "optimal_sampling": {"recipe": pr.optimal_sampling(cohort=5, uploads=2, epochs=2, batch=5), "rounds": 6},
    "per_fedavg": {
        "recipe": pr.per_fedavg(**SMALL, inner_lr=0.05),
        "federation": held_out,
        "evaluation": pr.Evaluation(personal_every=2),
    },
    "pfedme": {"recipe": pr.pfedme(**SMALL, beta=0.5), "federation": held_out, "model": Normalised},
    "power_of_choice": {"recipe": pr.power_of_choice(**SMALL)},
    "refl": {"recipe": pr.refl(**SMALL, rest=2), "fleet": COMES_AND_GOES, "rounds": 8},
    "scaffold": {"recipe": pr.scaffold(**SMALL)},
    "tifl": {"recipe": pr.tifl(cohort=2, epochs=1, batch=5), "fleet": TIERS, "federation": held_out, "rounds": 6},
    "vrl_sgd": {"recipe": pr.vrl_sgd(**SMALL)},
}
"""By the name of the recipe."""

PARTS: Mapping[str, dict[str, Any]] = {
    "as_invited": {"recipe": BASE | pr.parts.as_invited() | pr.parts.cluster_sampling(cohort=5)},
    "availability_sampling": {"recipe": BASE | pr.parts.availability_sampling(rest=1), "fleet": COMES_AND_GOES},
    "budget_steps": {"recipe": BASE | pr.parts.budget_steps()},
    "buffer": {"recipe": BUFFERED, "fleet": TIERS},
    "by_samples": {"recipe": pr.ccfl(cohort=3, batch=5) | pr.parts.by_samples()},
    "client_curriculum": {"recipe": BASE | pr.parts.client_curriculum()},
    "client_momentum": {
        "recipe": BASE | pr.parts.client_momentum(alpha=0.5) | pr.parts.local_sgd(momentum=0.9, clip=1.0),
    },
    "clip_updates": {"recipe": BASE | pr.parts.clip_updates(times=0.9, refuse=1.3), "rounds": 6},
    "cluster_sampling": {"recipe": BASE | pr.parts.cluster_sampling(by="updates"), "rounds": 6},
    "compress_int8": {"recipe": BASE | pr.parts.compress_int8()},
    "compress_top_k": {"recipe": BASE | pr.parts.compress_top_k(share=0.3)},
    "adaptive_start": {
        "recipe": BUFFERED
        | pr.parts.adaptive_start(rate=5.0, most=3, tensors=3)
        | pr.parts.personal_layers(layers=("norms",)),
        "federation": held_out,
        "model": Normalised,
        "fleet": TIERS | pr.fleet.Faults(nan=0.2),
        "rounds": 8,
    },
    "constant": {"recipe": BASE | pr.parts.cosine() | pr.parts.constant()},
    "control_variates": {"recipe": BUFFERED | pr.parts.control_variates() | pr.parts.equal(), "fleet": TIERS},
    "cosine": {"recipe": BASE | pr.parts.cosine(floor=0.1)},
    "critical_periods": {"recipe": BASE | pr.parts.critical_periods(delta=0.05), "rounds": 6},
    "curriculum": {"recipe": BASE | pr.parts.curriculum(score="local", least=4)},
    "delay_adaptive_step": {"recipe": BUFFERED | pr.parts.delay_adaptive_step(), "fleet": TIERS},
    "deadline": {"recipe": BASE | pr.parts.deadline(seconds=0.1), "fleet": TIERS},
    "diverse_sampling": {"recipe": BASE | pr.parts.diverse_sampling(), "fleet": COMES_AND_GOES, "rounds": 6},
    "dynamic_regularisation": {"recipe": BASE | pr.parts.dynamic_regularisation(alpha=0.05) | pr.parts.prox(mu=0.1)},
    "epochs": {"recipe": BASE | pr.parts.epochs(epochs=1.5)},
    "equal": {"recipe": BASE | pr.parts.equal()},
    "everything": {"recipe": BASE | pr.parts.personal_layers() | pr.parts.everything(), "model": layers},
    "exponential": {"recipe": BASE | pr.parts.exponential(gamma=0.9)},
    "fine_tuning": {
        "recipe": BASE | pr.parts.fine_tuning(epochs=1, layers=("head",), lr=0.2),
        "federation": held_out,
        "model": layers,
        "evaluation": pr.Evaluation(personal_every=2),
    },
    "from_current": {"recipe": BUFFERED | pr.parts.from_current(), "fleet": TIERS},
    "geometric_median": {"recipe": BASE | pr.parts.geometric_median()},
    "global_model": {"recipe": BASE | pr.parts.fine_tuning() | pr.parts.global_model()},
    "local_adam": {"recipe": BASE | pr.parts.local_adam(lr=0.01, weight_decay=0.1, decoupled=True, keep_state=True)},
    "local_amsgrad": {"recipe": BASE | pr.parts.local_amsgrad(keep_state=True, weight_decay=0.1, clip=1.0)},
    "local_sgd": {"recipe": BASE | pr.parts.local_sgd(momentum=0.9, nesterov=True, clip=1.0, weight_decay=0.01)},
    "lossless": {"recipe": BASE | pr.parts.compress_int8() | pr.parts.lossless()},
    "median": {"recipe": BASE | pr.parts.median()},
    "last_models": {"recipe": BASE | pr.parts.equal() | pr.parts.last_models()},
    "last_received": {
        "recipe": BASE | pr.parts.last_received() | pr.parts.from_current(scaled=False),
        "fleet": COMES_AND_GOES,
        "rounds": 6,
    },
    "last_updates": {"recipe": BASE | pr.parts.equal() | pr.parts.last_updates(unheard="wait")},
    "meta_step": {
        "recipe": BUFFERED | pr.parts.meta_step(form="hessian_free") | pr.parts.prox(mu=0.1),
        "federation": held_out,
        "fleet": TIERS,
    },
    "min_reports": {"recipe": BASE | pr.parts.min_reports(count=2), "fleet": TIERS | pr.fleet.Faults(lost=0.5)},
    "model_contrast": {
        "recipe": BASE | pr.parts.model_contrast(layer="logits") | pr.parts.prox(mu=0.1),
        "model": layers,
    },
    "moreau_envelope": {
        "recipe": BUFFERED | pr.parts.moreau_envelope(steps=2) | pr.parts.personal_layers(layers=("norms",)),
        "federation": held_out,
        "model": Normalised,
        "fleet": TIERS | pr.fleet.Faults(nan=0.2),
    },
    "nearest_neighbours": {
        "recipe": BUFFERED | pr.parts.nearest_neighbours(share=0.7, neighbours=3, layer="logits"),
        "federation": held_out,
        "model": layers,
        "fleet": TIERS,
        "evaluation": pr.Evaluation(personal_every=2),
    },
    "nearest_prototype": {
        "recipe": BASE | pr.parts.prototypes(strength=0.0) | pr.parts.nearest_prototype(),
        "federation": held_out,
        "model": Normalised,
    },
    "norm_sampling": {
        "recipe": BASE | pr.parts.norm_sampling(rescalings=4, uploads=1) | pr.parts.control_variates(),
        "fleet": TIERS | pr.fleet.Faults(dropout=0.2, lost=0.2),
    },
    "normalised_averaging": {"recipe": BASE | pr.parts.normalised_averaging() | pr.parts.local_sgd(momentum=0.9)},
    "on_arrival": {"recipe": BASE | pr.parts.on_arrival(most=3) | pr.parts.buffer(size=2), "fleet": COMES_AND_GOES},
    "utility_sampling": {
        "recipe": BASE | pr.parts.utility_sampling(exploration=0.5, pace=0.2),
        "fleet": TIERS,
        "rounds": 6,
    },
    "over_select": {"recipe": BASE | pr.parts.over_select(factor=1.5), "fleet": TIERS},
    "participation_intervals": {"recipe": BASE | pr.parts.equal() | pr.parts.participation_intervals()},
    "partial_work": {"recipe": BASE | pr.parts.partial_work(seconds=0.05), "fleet": TIERS},
    "per_step": {"recipe": BASE | pr.parts.per_step() | pr.parts.server_sgd(lr=5.0)},
    "personal_copy": {
        "recipe": BUFFERED | pr.parts.personal_copy(strength=0.5, epochs=1.5) | pr.parts.local_adam(lr=0.01),
        "federation": held_out,
        "model": Normalised,
        "fleet": TIERS,
    },
    "personal_first": {
        "recipe": pr.scaffold(**SMALL, momentum=0.5, clip=1.0)
        | pr.parts.personal_layers(layers=("*.bias",))
        | pr.parts.personal_first(epochs=1)
        | pr.parts.partial_work(seconds=0.1),
        "federation": held_out,
        "model": layers,
        "fleet": TIERS,
    },
    "personal_layers": {
        "recipe": BUFFERED | pr.parts.personal_layers(layers=("norms", "head")) | pr.parts.compress_top_k(share=0.3),
        "federation": held_out,
        "model": Normalised,
        "fleet": TIERS | pr.fleet.Faults(nan=0.2),
    },
    "prototypes": {
        "recipe": BUFFERED | pr.parts.prototypes(strength=2.0) | pr.parts.personal_layers(),
        "federation": held_out,
        "model": Normalised,
        "fleet": TIERS | pr.fleet.Faults(nan=0.2),
        "rounds": 6,
    },
    "personal_mixture": {
        "recipe": pr.scaffold(**SMALL, momentum=0.5, clip=1.0)
        | pr.parts.personal_mixture(share=0.3)
        | pr.parts.partial_work(seconds=0.1),
        "federation": held_out,
        "model": layers,
        "fleet": TIERS,
    },
    "power": {"recipe": BASE | pr.parts.power(alpha=0.1)},
    "loss_sampling": {"recipe": BASE | pr.parts.loss_sampling(variant="cpow", d=5, batch=4)},
    "prox": {"recipe": BASE | pr.parts.prox(mu=1.0)},
    "random_epochs": {"recipe": BASE | pr.parts.random_epochs(epochs=2, spread=1)},
    "random_resize": {"recipe": BASE | pr.parts.random_resize(up=0.5, down=0.5)},
    "rate_sampling": {"recipe": BASE | pr.parts.rate_sampling(beta=0.5), "rounds": 6},
    "largest_weights": {
        "model": Normalised,
        "recipe": BUFFERED | pr.parts.largest_weights(ratio=(1.0, 0.4)),
        "fleet": TIERS,
    },
    "depth_prefix": {
        "model": exits,
        "recipe": BUFFERED | pr.parts.depth_prefix(depth=(1, 3), distillation=0.5, ramp=2),
        "fleet": TIERS,
    },
    "residual_in_base": {
        "model": adapters,
        "recipe": BASE | pr.parts.residual_in_base() | pr.parts.prox(mu=0.1) | pr.parts.compress_int8(),
    },
    "stack_in_base": {"model": adapters, "recipe": BASE | pr.parts.stack_in_base() | pr.parts.equal()},
    "decomposed_average": {"model": adapters, "recipe": BASE | pr.parts.decomposed_average()},
    "length_weighted_average": {"model": adapters, "recipe": BASE | pr.parts.length_weighted_average()},
    "freeze_factor": {"model": adapters, "recipe": BUFFERED | pr.parts.freeze_factor(), "fleet": TIERS},
    "alternate_factors": {
        "model": adapters,
        "recipe": BASE | pr.parts.alternate_factors(versions=2) | pr.parts.compress_top_k(share=0.5),
    },
    "rank_prefix": {
        "model": adapters,
        "recipe": BUFFERED | pr.parts.rank_prefix(rank=(4, 1)) | pr.parts.server_adam(),
        "fleet": TIERS,
    },
    "random_width": {
        "recipe": BASE | pr.parts.random_width(ratio=(1.0, 0.5), shared=True) | pr.parts.server_adam(),
        "model": layers,
    },
    "rolling_window": {
        "recipe": BUFFERED | pr.parts.rolling_window(ratio=0.5) | pr.parts.compress_top_k(share=0.3),
        "model": layers,
        "fleet": TIERS,
    },
    "rolling": {
        "recipe": BASE | pr.parts.rolling(concurrency=3, once_per_buffer=True) | pr.parts.buffer(size=3),
        "fleet": TIERS,
    },
    "sampled_staleness": {"recipe": BASE | pr.parts.sampled_staleness(max_delay=3)},
    "server_adagrad": {"recipe": BASE | pr.parts.server_adagrad(beta1=0.9, initial=0.01)},
    "server_adam": {"recipe": BASE | pr.parts.server_adam(bias_correction=True)},
    "server_amsgrad": {"recipe": BASE | pr.parts.server_amsgrad()},
    "server_extrapolation": {"recipe": BASE | pr.parts.server_extrapolation()},
    "dp": {
        "recipe": BASE | pr.parts.equal() | pr.parts.dp(noise=0.5, clip=0.5) | pr.parts.poisson(rate=0.3),
        "rounds": 6,
    },
    "poisson": {"recipe": BASE | pr.parts.poisson(cohort=1), "rounds": 6},
    "secagg": {
        "recipe": BASE | pr.parts.uniform(cohort=5) | pr.parts.secagg(limit=4.0),
        "fleet": TIERS | pr.fleet.Faults(secagg_dropout=(0.05, 0.05, 0.1, 0.1)),
        "rounds": 6,
    },
    "cycle": {"recipe": BASE | pr.parts.cycle(cohort=1), "rounds": 5},
    "at_most": {"recipe": BASE | pr.parts.at_most(visits=2), "rounds": 3},
    "server_momentum": {"recipe": BASE | pr.parts.server_momentum()},
    "server_sgd": {"recipe": BASE | pr.parts.server_sgd(lr=0.5)},
    "server_yogi": {"recipe": BASE | pr.parts.server_yogi()},
    "shared_moments": {
        "recipe": BUFFERED | pr.parts.local_amsgrad() | pr.parts.shared_moments(),
        "fleet": TIERS | pr.fleet.Faults(nan=0.2, lost=0.2),
    },
    "shuffled": {"recipe": BASE | pr.parts.curriculum() | pr.parts.shuffled()},
    "skip_and_estimate": {
        "recipe": BASE | pr.parts.skip_and_estimate(storage="server", schedule="round_robin"),
        "rounds": 6,
    },
    "skip_and_resend_model": {"recipe": BASE | pr.parts.skip_and_resend_model(), "rounds": 6},
    "skip_silently": {"recipe": BASE | pr.parts.skip_silently(schedule="exhaust"), "rounds": 6},
    "stale_updates": {"recipe": BASE | pr.parts.equal() | pr.parts.stale_updates(beta=0.5)},
    "staleness": {"recipe": BUFFERED | pr.parts.staleness(rule="hinge"), "fleet": TIERS, "rounds": 6},
    "step_decay": {"recipe": BASE | pr.parts.step_decay(every=2)},
    "warm_up": {"recipe": BASE | pr.parts.cosine() | pr.parts.warm_up(length=2)},
    "steps": {"recipe": BASE | pr.parts.steps(steps=3)},
    "stop_on_drift": {
        "recipe": BASE | pr.parts.epochs(epochs=3) | DRIFT,
        "model": layers,
    },
    "sweep": {"recipe": BASE | pr.parts.sweep(cohort=2)},
    "tier_sampling": {
        "recipe": BASE | pr.parts.tier_sampling(cohort=2, tiers=3),
        "federation": held_out,
        "fleet": TIERS,
        "rounds": 6,
    },
    "time_out": {"recipe": BUFFERED | pr.parts.time_out(seconds=0.1), "fleet": TIERS | pr.fleet.Faults(slow=0.3)},
    "trimmed_mean": {"recipe": BASE | pr.parts.uniform(cohort=5) | pr.parts.trimmed_mean(share=0.3)},
    "unlike_updates": {"recipe": BUFFERED | pr.parts.unlike_updates(boost="paper"), "fleet": TIERS, "rounds": 6},
    "uniform": {"recipe": BASE | pr.parts.uniform(cohort=5)},
    "variance_reduction": {"recipe": BASE | pr.parts.variance_reduction()},
    "when_all": {"recipe": BASE | pr.parts.buffer(size=2) | pr.parts.when_all(), "fleet": TIERS},
    "whole": {"recipe": BASE | pr.parts.width_prefix() | pr.parts.whole(), "model": layers},
    "width_prefix": {
        "recipe": BASE | pr.parts.width_prefix(ratio=(1.0, 0.4), by="speed") | pr.parts.compress_int8(),
        "model": layers,
        "fleet": TIERS,
    },
}
"""By the name of the part, which is in the recipe."""

FLEETS: Mapping[str, Any] = {
    "Always": TIERS | pr.fleet.Always(),
    "ArrivalTrace": lambda: TIERS | pr.fleet.ArrivalTrace(path=from_files() / "arrivals.csv"),
    "AvailabilityTrace": lambda: TIERS | pr.fleet.AvailabilityTrace(path=from_files() / "presence.json", spread=1.0),
    "BandwidthTrace": lambda: TIERS | pr.fleet.BandwidthTrace(path=from_files() / "bandwidth.csv"),
    "ByLabels": TIERS | pr.fleet.ByLabels(cycle=0.2, lowest=0.3),
    "DeviceTrace": lambda: pr.Fleet() | pr.fleet.DeviceTrace(path=from_files() / "devices.csv"),
    "Energy": TIERS | pr.fleet.Energy(battery=2e-5, charging=1e-5, reserve=0.1),
    "Every": TIERS | pr.fleet.Every(seconds=0.1),
    "Exponential": pr.Fleet(devices=pr.fleet.Exponential()),
    "Faults": TIERS | pr.fleet.Faults(dropout=0.2, crash=0.1, downtime=0.05, slow=0.2, lost=0.1),
    "FixedLinks": TIERS | pr.fleet.FixedLinks(down=4000.0, up=1000.0, latency=0.01),
    "HalfNormal": pr.Fleet(devices=pr.fleet.HalfNormal()),
    "ListedDevices": pr.Fleet(devices=pr.fleet.ListedDevices(devices=(pr.fleet.Device(flops_per_second=1e6),))),
    "Lognormal": pr.Fleet(devices=pr.fleet.Lognormal()),
    "LognormalLinks": TIERS | pr.fleet.LognormalLinks(down=4000.0, up=1000.0),
    "Markov": COMES_AND_GOES,
    "Periodic": TIERS | pr.fleet.Periodic(period=0.4, on=0.6, zones=3, spread=0.1),
    "Poisson": TIERS | pr.fleet.Poisson(rate=20.0),
    "Tiers": pr.Fleet(devices=pr.fleet.Tiers(slowdown=(1.0, 4.0), shares=(0.5, 0.5), spread=(0.1, 0.5))),
    "Uniform": pr.Fleet(devices=pr.fleet.Uniform(flops_per_second=1e7)),
    "UserSpeeds": lambda: TIERS | pr.fleet.UserSpeeds(path=from_files() / "users.csv"),
    "Zipf": pr.Fleet(devices=pr.fleet.Zipf()),
    "phones": pr.fleet.phones,
}
"""By what is in the fleet."""
COMES = {"ArrivalTrace", "Every", "Poisson"}
"""Fleets whose clients come by themselves."""

PARTITIONS: Mapping[str, pr.data.Partition] = {
    "iid": pr.data.Iid(),
    "dirichlet": pr.data.Dirichlet(alpha=0.5, min_size=2),
    "dirichlet_per_client": pr.data.DirichletPerClient(beta=0.5),
    "shards": pr.data.Shards(per_client=2),
    "classes_per_client": pr.data.ClassesPerClient(classes=2),
    "quantity_skew": pr.data.QuantitySkew(alpha=1.0),
    "iid_fraction": pr.data.IidFraction(share=0.3),
    "by_column": pr.data.ByColumn(column="writer"),
    "difficulty": pr.data.Difficulty(inner=pr.data.Dirichlet(alpha=1.0)),
}
"""By their names on the command line."""

MODELS: Mapping[str, dict[str, Any]] = {
    "logistic": {"federation": digits},
    "multilabel-logistic": {"federation": tags},
    "mlp-exits": {},
    "mlp": {"engine": "auto", "recipe": pr.fedavg(cohort=3, epochs=1, batch=10)},
    "ccfl-mlp": {},
    "lenet5": {"federation": images, "engine": "native"},
    "moon-cnn": {"federation": images, "recipe": pr.moon(cohort=2, epochs=1, batch=8), "rounds": 2},
    "resnet9": {
        "federation": lambda: images(32, 3, augment=True),
        "recipe": pr.fedavg(cohort=1, epochs=1, batch=8),
        "rounds": 1,
        "checkpoint": NEVER,
    },
    "char-lstm": {"federation": text, "recipe": pr.fedavg(cohort=2, epochs=1, batch=10)},
    "signal-cnn": {"federation": signals, "recipe": pr.fedavg(cohort=2, epochs=1, batch=10)},
}
"""By their names on the command line."""
SLOW = {"model resnet9"}
"""Runs that take longer than a second."""
QUICK_TO_KILL = {"recipe scaffold", "rolling, coming and going", "all kinds of faults"}
"""Of those that are killed, which takes a process each, the ones that are always tried."""
TOO_LARGE = {"alexnet", "vgg11", "resnet18", "resnet18-exits", "resnet50", "hf"}
"""Models that take seconds to make and to step; their layers are those of others. And whatever a folder has."""

OTHERS: Mapping[str, dict[str, Any]] = {
    "ranks that are pruned": {
        "recipe": pr.hetlora(**SMALL, lr=0.1, rank=(4, 2), prune_to=0.5, tail_decay=2.0),
        "model": adapters,
        "rounds": 5,
    },
    "clients that never train": {
        "recipe": pr.fedrep(**SMALL, head_epochs=1) | pr.parts.control_variates(),
        "federation": functools.partial(dealt, collection(), validation=0.2, local_test=0.2, unseen=0.2),
        "model": layers,
    },
    "all kinds of faults": {
        "recipe": BUFFERED | pr.parts.control_variates() | pr.parts.trimmed_mean(share=0.3),
        "fleet": TIERS | pr.fleet.Faults(**dict.fromkeys(KINDS_OF_FAULTS, 0.15), downtime=0.3),
        "rounds": 10,
    },
    "a deadline, faults and over-selection": {
        "recipe": pr.scaffold(**SMALL) | pr.parts.over_select(factor=1.5) | pr.parts.deadline(seconds=0.2),
        "fleet": FLEETS["Faults"],
    },
    "rolling, coming and going": {
        "recipe": BUFFERED | pr.parts.server_adam() | pr.parts.staleness(),
        "fleet": COMES_AND_GOES | pr.fleet.Faults(dropout=0.1, crash=0.1, downtime=0.3),
        "rounds": 8,
    },
    "curriculum of anti order by both scores": {"recipe": pr.curriculum_fl(**SMALL, score="both", order="anti")},
    "afl for silos": {"recipe": pr.afl(variant="cs", concurrency=4, buffer=2, batch=5), "fleet": TIERS},
    "skipping with memories at both": {
        "recipe": pr.ccfl(cohort=3, batch=5, storage="mixed") | pr.parts.compress_int8()
    },
    "memories in files": {"recipe": pr.scaffold(**SMALL) | pr.parts.compress_top_k(share=0.3), "client_memory": "0 B"},
    "optimisers that are kept": {"recipe": pr.feddyn(**SMALL, momentum=0.9, keep_state=True)},
    "batch normalisation": {"model": Normalised, "recipe": pr.fedadam(**SMALL)},
    "batch normalisation, compressed and clipped": {
        "model": Normalised,
        "recipe": BASE | pr.parts.compress_int8() | pr.parts.clip_updates(norm=0.1),
    },
    "hidden clients, an adaptive clip": {
        "recipe": BASE
        | pr.parts.equal()
        | pr.parts.poisson(rate=0.6)
        | pr.parts.dp(noise=0.3, clip=Adaptive(start=0.2, count_noise=0.4)),
        "rounds": 6,
    },
    "hidden clients, correlated noise": {
        "recipe": BASE | pr.parts.equal() | pr.parts.cycle(cohort=1) | pr.parts.dp(noise=0.5, clip=0.5, bands=3),
        "rounds": 6,
    },
    "hidden clients, a cohort that follows released models": {
        "recipe": BASE
        | pr.parts.equal()
        | pr.parts.critical_periods(detector=ReleasedNorm())
        | pr.parts.at_most(visits=4)
        | pr.parts.dp(noise=0.3, clip=0.5),
        "rounds": 6,
    },
    "hidden clients in sums": {
        "recipe": BASE
        | pr.parts.equal()
        | pr.parts.dp(noise=0.3, clip=Adaptive(start=0.2, count_noise=0.4))
        | pr.parts.secagg(),
        "fleet": pr.fleet.Fleet() | pr.fleet.Faults(secagg_dropout=(0.0, 0.0, 0.1, 0.2)),
        "rounds": 6,
    },
    "hidden clients that come and go": {
        "recipe": BUFFERED | pr.parts.equal() | pr.parts.server_adam() | pr.parts.dp(noise=0.5, clip=0.5),
        "fleet": COMES_AND_GOES | pr.fleet.Faults(dropout=0.1, nan=0.1),
        "rounds": 8,
    },
    "another seed": {"seed": 7},
    "tags": {"federation": tags, "task": pr.task("multilabel", k=2)},
    "amounts": {"federation": amounts, "recipe": pr.fedavg(**SMALL, lr=0.01)},
    "smoothed labels": {"task": pr.task("classification", smoothing=0.1)},
    "until a time": {"rounds": None, "until": pr.Until(time=0.5), "fleet": TIERS},
    "until so many updates": {"rounds": None, "until": pr.Until(updates=10)},
    "until an accuracy": {"rounds": 20, "until": pr.Until(accuracy=0.7)},
    "all that is measured": {
        "federation": held_out,
        "fleet": TIERS,
        "evaluation": pr.Evaluation(
            every=2,
            train_samples=20,
            groups=True,
            measure=("update_similarity", "estimation_error", "sample_losses"),
        ),
    },
    "native engine": {"federation": digits, "model": layers, "engine": "native", "recipe": pr.scaffold(cohort=5)},
    "widths in the native engine": {
        "federation": digits,
        "model": layers,
        "engine": "native",
        "recipe": pr.fedavg(cohort=5) | pr.parts.random_width(ratio=(1.0, 0.5)),
    },
    "widths, classes that clients lack": {
        "model": layers,
        "recipe": pr.heterofl(**SMALL, ratio=(1.0, 0.5), masked=True),
        "federation": few_classes,
    },
    "widths, static norms": {
        "model": Normalised,
        "recipe": pr.heterofl(**SMALL, ratio=(1.0, 0.5), static_norms=True),
    },
    "widths, control variates": {
        "model": layers,
        "recipe": pr.scaffold(**SMALL) | pr.parts.width_prefix(ratio=(1.0, 0.5)),
    },
    "widths, a memory of updates": {
        "model": layers,
        "recipe": pr.fedvarp(**SMALL) | pr.parts.width_prefix(ratio=(1.0, 0.5)),
        "fleet": TIERS,
    },
    "widths, a median": {
        "model": layers,
        "recipe": BASE | pr.parts.rolling_window(ratio=(1.0, 0.5)) | pr.parts.median(),
    },
    "depths, FedDyn": {"model": exits, "recipe": pr.depthfl(**SMALL, depth=(1, 2, 3), alpha=0.1)},
    "widths, batch normalisation": {
        "model": Normalised,
        "recipe": BUFFERED | pr.parts.width_prefix(ratio=(1.0, 0.5)),
        "fleet": TIERS,
    },
    "native engine, rolling": {
        "model": layers,
        "engine": "native",
        "recipe": pr.fedbuff(concurrency=4, buffer=2, batch=10, optimiser="adam"),
        "fleet": TIERS,
    },
    "native engine, stopping": {
        "model": layers,
        "engine": "native",
        "recipe": ALT,
    },
    "stacked engine": {"federation": digits, "model": layers, "engine": "stacked", "device": "cpu"},
    "stacked engine, widths": {
        "federation": digits,
        "model": layers,
        "recipe": pr.heterofl(cohort=5, ratio=(1.0, 0.5)),
        "engine": "stacked",
        "device": "cpu",
    },
    "stacked engine, two at once": {
        "federation": digits,
        "model": layers,
        "engine": "stacked",
        "device": "cpu",
        "stack": 2,
        "recipe": pr.feddyn(cohort=5, epochs=1),
    },
}

ORDERS: Mapping[str, pr.Recipe] = {
    "shuffled passes": BASE,
    "half passes": BASE | pr.parts.epochs(epochs=1.5),
    "steps from visit to visit": BASE | pr.parts.steps(steps=3),
    "short batches dropped": pr.fedavg(**SMALL, drop_last=True),
    "a random curriculum": BASE | pr.parts.curriculum(order="random", least=4),
    "a curriculum by the own loss": BASE | pr.parts.curriculum(score="local", least=4),
    "random epochs of a sweep": BASE | pr.parts.random_epochs(epochs=2, spread=1) | pr.parts.sweep(cohort=2),
    "what fits into a time": BASE | pr.parts.partial_work(seconds=0.02),
}
"""In what order samples are read."""

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "quickstart": (*QUICKSTART.split(" "), "--seed", "0"),
    "fisher traces": ("fedavg(cohort=5, epochs=1) | critical_periods(detector=fisher_trace(labels=model))",),
    "watched gradients": ("fedavg(cohort=5, epochs=1) | critical_periods(watch=[gradient_norm, fisher_trace])",),
    "pacing": ("curriculum_fl(cohort=5, epochs=1, pacing=exponential)",),
    "listed budgets": ("ccfl(cohort=5, epochs=1, budgets=listed(shares=[1.0, 0.5, 0.25]))",),
    "slow clients": ("fedavg(cohort=5, epochs=1) | skip_silently", "--fleet", "tiers | slow_share(share_slow=0.5)"),
    "budgets of a fleet": ("ccfl(cohort=5, epochs=1)", "--fleet", "uniform | budgets(levels=3)"),
    "a table": ("fedavg(cohort=3)", "--data", "table(path={files}/table.csv, target=y)", "--model", "logistic"),
    "arrays in a file": ("fedavg(cohort=3)", "--data", "npz(path={files}/arrays.npz)", "--partition", "iid"),
    "a projection": ("moon(cohort=2, epochs=1)", "--model", "with_projection(mlp(hidden=[8]), size=16)"),
}
"""Arguments of the command line; where they do not begin with a command, those of a short run by its method."""

FOLLOWS = {
    *("recipe optimal_sampling", "part norm_sampling"),
    *("recipe divfl", "part cluster_sampling", "part diverse_sampling"),
    *("recipe alt", "recipe fedcl", "recipe oort", "recipe power_of_choice", "recipe tifl"),
    *(
        "part client_curriculum",
        "part clip_updates",
        "part critical_periods",
        "part utility_sampling",
        "part loss_sampling",
    ),
    *("part stop_on_drift", "part tier_sampling", "native engine, stopping", "until an accuracy"),
    *("fisher traces", "watched gradients", "order of a curriculum by the own loss"),
    "hidden clients, a cohort that follows released models",
}
"""Runs whose decisions follow numbers: losses, drifts, norms or accuracies say who is invited, or how long it works."""


def _command(name: str) -> tuple[str, ...]:
    given = [argument.format(files=from_files()) if "{files}" in argument else argument for argument in COMMANDS[name]]
    short = ("run", "--clients", "10", "--rounds", "3", "--model", "mlp(hidden=[8])", "--method")
    return tuple(given) if given[0] == "run" else (*short, *given)


def _fleet(name: str) -> dict[str, Any]:
    recipe = BASE | pr.parts.on_arrival() | pr.parts.buffer(size=2) if name in COMES else BASE
    return {"fleet": FLEETS[name], "recipe": recipe}


def _partition(name: str) -> dict[str, Any]:
    data = collection()
    if name == "difficulty":
        data = data.with_column("difficulty", np.arange(90) * 37 % 90)
    return {"federation": functools.partial(dealt, data, PARTITIONS[name])}


@functools.cache
def runs() -> Mapping[str, Golden]:
    """All of them, by name."""
    made = {
        **{f"recipe {name}": Golden(settings=settings) for name, settings in RECIPES.items()},
        **{f"part {name}": Golden(settings=settings) for name, settings in PARTS.items()},
        **{f"fleet {name}": Golden(settings=_fleet(name)) for name in FLEETS},
        **{f"partition {name}": Golden(settings=_partition(name)) for name in PARTITIONS},
        **{f"model {name}": Golden(settings={"model": name, **settings}) for name, settings in MODELS.items()},
        **{name: Golden(settings=settings) for name, settings in OTHERS.items()},
        **{
            f"order of {name}": Golden(settings={"federation": watched, "recipe": recipe, "rounds": 3})
            for name, recipe in ORDERS.items()
        },
        **{name: Golden(command=_command(name)) for name in COMMANDS},
    }
    return {name: replace(run, follows=name in FOLLOWS) for name, run in made.items()}


ADAPTED = (
    *("recipe fedit", "recipe ffa_lora", "recipe rolora", "recipe fedsa_lora"),
    *("recipe fedex_lora", "recipe flora", "recipe flexlora", "recipe hetlora", "ranks that are pruned"),
)
"""Every recipe of low-rank adapters."""
NODES = (
    *("recipe fedavg", "recipe optimal_sampling", "recipe scaffold", "part compress_int8"),
    *("recipe fedrolex", "part width_prefix", "recipe fedrep", "recipe fiarse", "recipe depthfl"),
    *(*ADAPTED, "part residual_in_base", "part alternate_factors"),
    "widths, classes that clients lack",
)
WAYS: Mapping[str, tuple[str, ...]] = {
    "in processes": (
        *("recipe fedrolex", "part random_width", "widths in the native engine"),
        *("part largest_weights", "part depth_prefix", "widths, classes that clients lack"),
        *(*ADAPTED, "part alternate_factors"),
        *("recipe scaffold", "recipe fedbuff", "recipe ccfl", "recipe moon", "recipe alt", "part curriculum"),
        *("part compress_top_k", "part partial_work", "all kinds of faults", "native engine"),
        *("recipe optimal_sampling", "recipe fedlalr", "recipe fedrep", "part personal_copy", "part personal_layers"),
        *("recipe apfl", "part meta_step", "part moreau_envelope", "part adaptive_start", "recipe fedproto"),
        *("part dp", "part secagg"),
    ),
    "in threads": ("widths in the native engine", "native engine", "native engine, rolling", "model lenet5"),
    "on Ray": (
        *ADAPTED,
        "recipe fedrolex",
        "recipe fiarse",
        "recipe depthfl",
        "recipe scaffold",
        "recipe fedbuff",
        "recipe alt",
        "part critical_periods",
        "part curriculum",
        "recipe fedrep",
        "recipe pfedme",
        "recipe fedala",
        "recipe fedproto",
        *("part dp", "part secagg"),
    ),
    "killed and resumed": (
        *("recipe scaffold", "recipe fedbuff", "recipe ccfl", "recipe mifa", "recipe oort", "recipe alt"),
        *("widths, batch normalisation", "part largest_weights", "part depth_prefix"),
        *(*ADAPTED, "part residual_in_base"),
        *("rolling, coming and going", "all kinds of faults", "memories in files", "optimisers that are kept"),
        *("part compress_int8", "part client_curriculum", "batch normalisation", "recipe f3ast", "recipe divfl"),
        *("recipe fedawe", "recipe optimal_sampling", "recipe refl"),
        *("recipe fedrep", "part personal_copy", "part personal_layers"),
        *("recipe apfl", "recipe per_fedavg", "part moreau_envelope", "part adaptive_start", "part prototypes"),
        *("part dp", "hidden clients that come and go", "part secagg", "hidden clients in sums"),
    ),
    "stopped and resumed": (
        *("recipe scaffold", "recipe fedasync", "recipe tifl", "recipe fedcl", "part on_arrival", "part deadline"),
        *("recipe local_only", "recipe power_of_choice", "native engine", "fleet Energy"),
        *("part dp", "part poisson", "hidden clients, an adaptive clip", "hidden clients, correlated noise"),
    ),
    "finished and extended": ("recipe fedavg", "recipe feddyn", "recipe fedbuff", "part server_adam", "part dp"),
    "replayed": (
        *("recipe heterofl", "part rolling_window", "part largest_weights", "recipe depthfl"),
        *("recipe hetlora", "part stack_in_base", "recipe rolora"),
        *("recipe fedavg", "recipe scaffold", "recipe fedbuff", "recipe afl", "recipe mifa", "all kinds of faults"),
        *("recipe f3ast", "recipe divfl", "recipe fedawe", "recipe optimal_sampling"),
        *("rolling, coming and going", "a deadline, faults and over-selection", "part compress_top_k"),
        *("part dp", "part poisson", "hidden clients that come and go", "part secagg"),
    ),
    "verified": (
        "recipe ccfl",
        "recipe cc_fedadam",
        "part on_arrival",
        "recipe local_only",
        "stacked engine",
        "part dp",
    ),
    "on nodes": (
        *NODES,
        "recipe fedbn",
        "recipe ditto",
        "recipe apfl",
        "recipe pfedme",
        "recipe per_fedavg",
        "recipe fedala",
        "recipe fedproto",
        "recipe fedlalr",
        "part poisson",
    ),
    "on Flower": NODES,
}
"""Which runs are also carried out in other ways, to the same numbers."""
