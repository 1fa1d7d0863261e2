"""The algebra of recipes: what a pipe replaces, chains, inherits and refuses, and what a digest stands for."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.methods import papers
from polyrhythm.methods.correction import (
    ControlVariates,
    DynamicRegularisation,
    ModelContrast,
    Prox,
    VarianceReduction,
)
from polyrhythm.methods.local.optimisers import LocalAdam, LocalAMSGrad, LocalSgd
from polyrhythm.methods.local.schedules import Constant, Cosine, Exponential, StepDecay
from polyrhythm.methods.papers import (
    alt,
    cc_fedadam,
    centralised,
    curriculum_fl,
    fedadam,
    fedams,
    fedavg,
    fedavgm,
    fedcl,
    feddyn,
    fednova,
    fedprox,
    local_only,
    moon,
    scaffold,
    vrl_sgd,
)
from polyrhythm.methods.participation.base import Sweep, Uniform
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Adam, AMSGrad, Momentum, Sgd, Yogi
from polyrhythm.methods.weighing import BySamples, Equal, NormalisedAveraging
from polyrhythm.methods.work.base import Epochs, RandomEpochs, Steps
from polyrhythm.methods.work.budgets import Levels, Listed, SlowShare
from polyrhythm.methods.work.skip_and_estimate import BudgetSteps, SkipAndEstimate, SkipSilently

PAPERS: dict[str, Callable[..., Recipe]] = {name: getattr(papers, name) for name in papers.__all__ if name != "Common"}

# Pipes.


@pytest.mark.parametrize(
    ("part", "slot"),
    [
        (Steps(steps=3), "work"),
        (Equal(), "sharing"),
        (Adam(lr=0.5), "server_step"),
        (LocalAdam(), "optimiser"),
        (Exponential(gamma=0.9), "schedule"),
        (Sweep(cohort=3), "participation"),
    ],
)
def test_a_single_choice_is_replaced_and_nothing_else(part: Settings, slot: str) -> None:
    before = fedavg(momentum=0.5)
    after = before | part
    assert getattr(after, slot) == part
    same = {f.name for f in dataclasses.fields(Recipe)} - {slot, "title", "notices"}
    assert all(getattr(after, name) == getattr(before, name) for name in same)
    assert after.title == f"fedavg | {part.label()}"
    assert before == fedavg(momentum=0.5)


@pytest.mark.parametrize(
    ("recipe", "part", "words"),
    [
        (fedavg(epochs=3), Steps(steps=3), "steps takes the place of epochs (work)"),
        (fedadam(), Yogi(), "server_yogi takes the place of server_adam (server step)"),
        (fedadam(), Adam(lr=0.5), "server_adam takes the place of server_adam (server step)"),
        (scaffold(), BySamples(), "by_samples takes the place of equal (sharing)"),
        (fedavg(), Sweep(), "sweep takes the place of uniform (participation)"),
        (alt(epochs=3), Steps(steps=3), "steps takes the place of epochs (work)"),
        (alt(steps=3) | BudgetSteps(), RandomEpochs(), "random_epochs takes the place of steps (work)"),
        (fedcl(cohort=4), Sweep(cohort=3), "sweep takes the place of uniform (participation)"),
        (fedavg(lr=0.5), LocalAdam(), "local_adam takes the place of local_sgd (optimiser)"),
        (fedavg(schedule=StepDecay(every=2)), Constant(), "constant takes the place of step_decay (schedule)"),
    ],
)
def test_a_replacement_says_so(recipe: Recipe, part: Settings, words: str) -> None:
    assert (recipe | part).notices == (words,)
    assert (recipe | part | Prox()).notices == (words,), "what was said stays said"


@pytest.mark.parametrize(
    "part", [Adam(), Equal(), Cosine(), Prox(), NormalisedAveraging(), Sgd(), BySamples(), Uniform(), Epochs(epochs=2)]
)
def test_filling_a_neutral_slot_or_repeating_what_is_there_replaces_nothing(part: Settings) -> None:
    assert (fedavg(epochs=2) | part).notices == ()


@pytest.mark.parametrize("recipe", [fedavg(steps=3, cohort=4), alt(epochs=3), fedcl(cohort=4)])
@pytest.mark.parametrize("part", [SkipSilently(), BudgetSteps(), SampledStaleness(), Rolling(concurrency=7)])
def test_a_policy_around_replaces_nothing(recipe: Recipe, part: Settings) -> None:
    assert (recipe | part).notices == ()


def test_corrections_chain_in_order_and_get_keys_of_their_own() -> None:
    first, second = Prox(mu=0.1), Prox(mu=0.2)
    recipe = fedavg() | first | ModelContrast() | second
    assert recipe.corrections == (first, ModelContrast(), second)
    keyed = dict(recipe.mechanisms())
    assert keyed["prox"] is first
    assert keyed["prox#2"] is second
    assert recipe.key_of(second) == "prox#2"
    assert [key for key, _ in recipe.mechanisms()] == [
        *("uniform", "epochs", "shuffled", "prox", "model_contrast", "prox#2"),
        *("by_samples", "when_all", "server_sgd", "lossless"),
    ]


def test_fedprox_with_scaffold_is_one_line() -> None:
    assert (fedprox(mu=0.1) | ControlVariates()).corrections == (Prox(mu=0.1), ControlVariates())


@given(st.permutations([Sweep(cohort=4), Equal(), Adam(), Steps(steps=7), LocalSgd(lr=0.3), Prox(mu=0.5)]))
def test_parts_of_different_slots_pipe_in_any_order(parts: list[Settings]) -> None:
    recipe = fedavg()
    for part in parts:
        recipe = recipe | part
    assert (
        recipe.digest
        == (fedprox(mu=0.5) | Sweep(cohort=4) | Equal() | Adam() | Steps(steps=7) | LocalSgd(lr=0.3)).digest
    )


@pytest.mark.parametrize("kind", [Uniform, Sweep])
def test_a_participation_without_a_cohort_takes_over_the_one_before(kind: type[Uniform] | type[Sweep]) -> None:
    assert (fedavg(cohort=4) | kind()).participation == kind(cohort=4)
    assert (fedavg(cohort=4) | kind(cohort=7)).participation == kind(cohort=7)
    assert (fedavg(cohort=4) | Sweep() | kind()).participation == kind(cohort=4)
    assert (Recipe() | kind()).participation.size == 10


def test_a_whole_recipe_on_the_right_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        fedprox() | fedadam()
    assert caught.value.found == "a whole recipe (fedadam) on the right of a pipe"
    assert "start from fedadam" in caught.value.fix
    assert "pr.parts" not in caught.value.fix
    with pytest.raises(UserError) as caught:
        fedprox() | papers.oort()
    assert caught.value.fix.endswith("pr.parts.utility_sampling()")


@pytest.mark.parametrize("thing", ["prox", None, 3, Prox, {"mu": 1.0}, fedprox])
def test_what_is_no_part_is_refused(thing: object) -> None:
    with pytest.raises(UserError, match="on the right of a pipe"):
        fedavg() | thing


# Pairs that cannot work together.

MEMORIES = [ControlVariates(), VarianceReduction(), DynamicRegularisation()]


@pytest.mark.parametrize("first", MEMORIES)
@pytest.mark.parametrize("second", MEMORIES)
def test_two_memories_of_drift_are_refused(first: Any, second: Any) -> None:
    with pytest.raises(UserError, match="drift") as caught:
        fedavg() | first | Prox() | second
    assert caught.value.found == f"{first.label()} and {second.label()} in one recipe"
    assert caught.value.fix == f"keep {first.label()} or {second.label()}"


@pytest.mark.parametrize("recipe", [scaffold(), vrl_sgd(), fednova()])
def test_what_divides_by_travel_refuses_adam_and_momentum_kept_over_visits(recipe: Recipe) -> None:
    with pytest.raises(UserError, match="effective sum of local steps"):
        recipe | LocalAdam()
    with pytest.raises(UserError, match="momentum kept over visits"):
        recipe | LocalSgd(momentum=0.5, keep_state=True)
    with pytest.raises(UserError, match=r"control_variates|variance_reduction|normalised_averaging"):
        fedavg(optimiser="adamw") | (recipe.corrections or recipe.scalings)[0]
    assert (recipe | LocalSgd(keep_state=True)).optimiser.keep_state
    assert (recipe | LocalSgd(momentum=0.5)).optimiser == LocalSgd(momentum=0.5)


@pytest.mark.parametrize("recipe", [scaffold(lr=0.5), vrl_sgd(lr=0.5), fednova(lr=0.5)], ids=lambda r: r.title)
def test_what_divides_by_travel_refuses_pulls_that_undo_every_step(recipe: Recipe) -> None:
    """With lr * (pull + decay) = 1, each step goes back to w0 before it goes on, so the way is that of one step."""
    assert (recipe | Prox(mu=1.9)).corrections[-1] == Prox(mu=1.9)
    decayed = LocalSgd(lr=0.5, weight_decay=0.5)
    assert recipe | decayed | Prox(mu=1.0) | Prox(mu=0.25)
    for build in (
        lambda: recipe | Prox(mu=2.0),
        lambda: recipe | LocalSgd(lr=0.5, weight_decay=2.0),
        lambda: recipe | decayed | Prox(mu=1.0) | Prox(mu=0.5),
        lambda: recipe | Prox(mu=1.0) | LocalSgd(lr=1.0),
    ):
        with pytest.raises(UserError, match=r"lr \* \(pull \+ weight_decay\) = .* = 1\b") as caught:
            build()
        assert caught.value.expected == "less than 1"
    with pytest.raises(UserError, match="would undo"):
        fednova(lr=0.5) | DynamicRegularisation(alpha=2.0)
    assert fedavg(lr=0.5, weight_decay=0.5) | Prox(mu=3.0), "whoever does not divide may pull as it likes"


@pytest.mark.parametrize("method", [fedavg, fedprox, moon, feddyn, fedadam])
def test_methods_without_travel_take_local_adam(method: Callable[..., Recipe]) -> None:
    assert method(optimiser="adam").optimiser == LocalAdam()
    assert method(optimiser="adamw", lr=0.5, weight_decay=0.1).optimiser == LocalAdam(
        lr=0.5, weight_decay=0.1, decoupled=True
    )


def test_a_scaling_twice_is_refused() -> None:
    with pytest.raises(UserError, match="squared"):
        fednova() | NormalisedAveraging(effective="steps")


@pytest.mark.parametrize("part", [*MEMORIES, NormalisedAveraging(), Adam(), Momentum()])
def test_local_training_refuses_what_needs_a_release(part: Any) -> None:
    with pytest.raises(UserError, match="nothing is exchanged"):
        local_only() | part
    assert (local_only() | Prox() | Sweep()).regime == "local"


# Digests.


@pytest.mark.parametrize("name", PAPERS)
def test_recipes_share_their_defaults_and_differ_by_what_makes_the_method(name: str) -> None:
    own: dict[str, set[str]] = {
        "ace": {"modifiers", "sharing", "release", "server_step"},
        "aced": {"modifiers", "sharing", "release", "server_step"},
        "area": {"modifiers", "sharing", "release"},
        "ca2fl": {"modifiers", "sharing", "release"},
        "fadas": {"modifiers", "sharing", "release", "server_step"},
        "apfl": {"sharing", "personal"},
        "fedala": {"personal"},
        "fedproto": {"corrections", "sharing", "scope", "personal"},
        "knn_per": {"personal"},
        "pfedme": {"sharing", "personal", "optimiser"},
        "per_fedavg": {"sharing", "personal"},
        "ditto": {"sharing", "personal"},
        "fedau": {"sharing", "scalings"},
        "clustered_sampling": {"participation", "sharing"},
        "divfl": {"participation", "sharing"},
        "f3ast": {"participation", "sharing"},
        "fedawe": {"sharing", "scalings", "modifiers"},
        "optimal_sampling": {"participation", "sharing"},
        "fedlalr": {"corrections", "sharing", "optimiser"},
        "refl": {"participation", "sharing", "release", "modifiers"},
        "fedcm": {"corrections", "sharing"},
        "fedavg_ft": {"personal"},
        "fedbabu": {"sharing", "scope", "modifiers", "personal"},
        "fedbn": {"sharing", "scope"},
        "fedper": {"scope"},
        "fedrep": {"scope", "modifiers"},
        "lg_fedavg": {"sharing", "scope"},
        "federated_dropout": {"capacity"},
        "fedexp": {"sharing", "server_step"},
        "fedrolex": {"sharing", "capacity"},
        "heterofl": {"sharing", "capacity"},
        "fiarse": {"sharing", "capacity"},
        "depthfl": {"sharing", "capacity"},
        "fedit": set(),
        "ffa_lora": {"modifiers"},
        "rolora": {"modifiers"},
        "fedsa_lora": {"scope"},
        "fedex_lora": {"modifiers"},
        "flora": {"modifiers"},
        "flexlora": {"modifiers", "capacity"},
        "hetlora": {"modifiers", "capacity"},
        "fedstale": {"sharing", "modifiers"},
        "fedvarp": {"sharing", "modifiers"},
        "afl": {"modifiers", "sharing", "scalings", "release", "server_step"},
        "fedasync": {"modifiers", "corrections", "scalings", "release", "server_step"},
        "fedavg": set(),
        "fedbuff": {"modifiers", "sharing", "scalings", "release"},
        "fedprox": {"corrections"},
        "scaffold": {"corrections", "sharing"},
        "vrl_sgd": {"corrections", "sharing"},
        "feddyn": {"corrections", "sharing"},
        "mifa": {"sharing", "modifiers"},
        "moon": {"corrections"},
        "fednova": {"scalings"},
        "fedavgm": {"server_step"},
        "fedadagrad": {"server_step"},
        "fedadam": {"server_step"},
        "fedyogi": {"server_step"},
        "fedams": {"server_step"},
        "local_only": {"regime"},
        "centralised": {"regime", "participation", "optimiser"},
        "alt": {"modifiers"},
        "ccfl": {"modifiers", "sharing"},
        "fedcl": {"modifiers"},
        "curriculum_fl": {"participation", "order"},
        "oort": {"participation"},
        "power_of_choice": {"participation", "sharing"},
        "tifl": {"participation"},
    }
    client_centric = {"participation", "modifiers", "work", "sharing", "scalings", "release"}
    own |= {"cc_fedavg": client_centric} | {
        name: client_centric | {"server_step"} for name in PAPERS if name.startswith("cc_") and name != "cc_fedavg"
    }
    recipe, plain = PAPERS[name](), fedavg()
    differing = {f.name for f in dataclasses.fields(Recipe) if getattr(recipe, f.name) != getattr(plain, f.name)}
    assert differing - {"title"} == own[name]
    assert recipe.title == name
    assert (recipe.digest == plain.digest) == (not own[name])


def test_fedprox_without_strength_is_fedavg_with_a_neutral_part() -> None:
    neutral = fedprox(mu=0)
    assert neutral.corrections == (Prox(mu=0),)
    assert dataclasses.replace(neutral, corrections=()).digest == fedavg().digest
    assert neutral.digest == (fedavg() | Prox(mu=0.0)).digest
    assert neutral.digest != fedavg().digest


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (fedavg(momentum=0.9), fedavg() | LocalSgd(lr=fedavg().optimiser.lr, momentum=0.9)),
        (fedprox(mu=1), fedavg() | Prox(mu=1.0)),
        (fedavg(epochs=2), fedavg(epochs=2.0)),
        (fedadam(server_lr=1), fedavg() | Adam(lr=1.0, epsilon=1e-3)),
        (scaffold(), fedavg() | ControlVariates() | Equal()),
        (fednova(steps=5), fedavg() | NormalisedAveraging() | Steps(steps=5)),
        (fedavg(cohort=4) | Sweep(), fedavg() | Sweep(cohort=4)),
        (fedams() | Sgd(), fedavg()),
        (fedavg(schedule=Cosine()), fedavg() | Cosine(floor=0)),
    ],
)
def test_one_method_has_one_digest_however_it_was_built(one: Recipe, two: Recipe) -> None:
    assert one.digest == two.digest
    assert len(one.digest) == 64


def changed(value: Any, words: Sequence[str] = ()) -> Iterator[Any]:
    """Other values for a setting, which may be one of `words`; some may be refused."""
    if isinstance(value, Settings):
        yield from variants(value)
        return
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, float):
        yield value / 2 + 0.01
    elif value is None:
        yield 3
        yield 3.0
    elif isinstance(value, tuple) and value:
        yield value[1:]
        yield from ((other, *value[1:]) for other in changed(value[0]))
    elif isinstance(value, str):
        yield from (word for word in words or ("features",) if word != value)


def variants(part: Settings) -> Iterator[Settings]:
    words = {n: literals(hint) for n, hint in get_type_hints(type(part)).items()}
    for field in dataclasses.fields(part):
        if not field.metadata.get("digest", True):
            continue
        accepted, value = 0, getattr(part, field.name)
        for other in changed(value, words[field.name]):
            try:
                yield dataclasses.replace(part, **{field.name: other})
            except UserError:
                continue
            accepted += 1
        without = value == () or (isinstance(value, Settings) and not dataclasses.fields(value))
        needs_another = field.name == "nesterov"  # refused without momentum; the first subject has some
        assert accepted or without or needs_another, f"no other value of {type(part).__name__}.{field.name} was tried"


def literals(hint: Any) -> list[str]:
    """The words that an annotation lists."""
    inside = get_args(hint)
    return [w for w in inside if isinstance(w, str)] + [w for one in inside for w in literals(one)]


WORDS = [(n, s) for n, made in PAPERS.items() for s, hint in get_type_hints(made).items() if literals(hint)]


@pytest.mark.parametrize(("name", "setting"), WORDS)
def test_a_word_that_a_recipe_does_not_know_is_refused(name: str, setting: str) -> None:
    with pytest.raises(UserError) as caught:
        PAPERS[name](**{setting: "no such word"})
    assert "no such word" in caught.value.found


SUBJECTS = [
    fedavg(momentum=0.5, nesterov=True, clip=3.0, weight_decay=0.1, schedule=StepDecay(every=3)),
    fedavg(steps=5, optimiser="adam", schedule=Exponential(gamma=0.9)) | Prox() | ModelContrast() | AMSGrad(),
    feddyn(schedule=Cosine()) | Sweep(cohort=3) | Momentum(),
    fednova() | Yogi(),
    alt()
    | SkipAndEstimate(budgets=Levels(), schedule="exhaust", storage="mixed", expire=3)
    | BudgetSteps(budgets=Levels()),
    fedavg() | RandomEpochs() | SkipSilently(budgets=SlowShare(), schedule="round_robin"),
    cc_fedadam() | SkipSilently(budgets=Listed(shares=(0.5, 1.0))),
    fedcl() | SampledStaleness(),
    curriculum_fl(),
]


@pytest.mark.parametrize("recipe", SUBJECTS, ids=lambda r: r.title)
def test_every_changed_setting_changes_the_digest(recipe: Recipe) -> None:
    others = [other for other in variants(recipe) if isinstance(other, Recipe)]
    digests = [other.digest for other in others]
    assert len(digests) >= 15
    assert recipe.digest not in digests
    distinct = {str(other.describe()) for other in others}
    assert len(set(digests)) == len(distinct)


@pytest.mark.parametrize("recipe", SUBJECTS, ids=lambda r: r.title)
def test_words_change_no_digest_and_a_recipe_survives_pickling(recipe: Recipe) -> None:
    renamed = dataclasses.replace(recipe, title="other", notices=("said",))
    assert renamed.digest == recipe.digest
    other = pickle.loads(pickle.dumps(recipe))
    assert other == recipe
    assert other.digest == recipe.digest
    assert other.key_of(other.server_step) == recipe.key_of(recipe.server_step)


def test_needs_are_those_of_all_parts() -> None:
    assert fedavg().needs() == frozenset()
    assert scaffold().needs() == {"travel"}
    assert (scaffold(schedule=Cosine()) | ModelContrast()).needs() == {"travel", "previous", "total_rounds"}
    assert local_only().needs() == {"previous"}


# Common settings.


@pytest.mark.parametrize("name", PAPERS)
def test_every_recipe_takes_the_common_settings_by_the_same_names(name: str) -> None:
    cohort = {} if name == "centralised" else {"cohort": 3}
    own: dict[str, Any] = {"momentum": 0.7, "nesterov": True} if name != "fedlalr" else {}
    recipe = PAPERS[name](
        **cohort, **own, steps=4, batch=5, lr=0.6, weight_decay=0.8, clip=0.9,
        schedule=Cosine(), drop_last=True, keep_state=False,
    )  # fmt: skip
    assert recipe.work == Steps(steps=4)
    assert recipe.batch == 5
    kind = LocalSgd if own else LocalAMSGrad
    assert recipe.optimiser == kind(lr=0.6, weight_decay=0.8, clip=0.9, **own)
    assert recipe.schedule == Cosine()
    assert recipe.drop_last
    assert recipe.participation.size == (1 if name == "centralised" else 3)
    assert PAPERS[name](epochs=0.5, batch=None).work == Epochs(epochs=0.5)


@pytest.mark.parametrize("name", PAPERS)
def test_an_unknown_setting_is_refused_with_the_nearest_name(name: str) -> None:
    with pytest.raises(UserError) as caught:
        PAPERS[name](cohrt=3)
    assert caught.value.found == f"unknown setting 'cohrt' in {name}"
    assert "'cohort'" in caught.value.fix


@pytest.mark.parametrize("setting", [{"epochs": "2"}, {"batch": 2.5}, {"lr": -1}, {"cohort": 0}, {"epochs": None}])
def test_a_common_setting_of_the_wrong_kind_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(setting))):
        fedavg(**setting)


def test_epochs_and_steps_are_refused_together() -> None:
    with pytest.raises(UserError, match="epochs=2 and steps=3"):
        fedavg(epochs=2, steps=3)


def test_what_adapts_its_rates_by_shared_moments_has_no_others() -> None:
    for setting in ({"momentum": 0.9}, {"optimiser": "adam"}, {"keep_state": True}):
        with pytest.raises(UserError, match=f"fedlalr: {next(iter(setting))}"):
            PAPERS["fedlalr"](**setting)


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_adam_refuses_momentum_and_has_a_rate_of_its_own(kind: Any) -> None:
    some: list[dict[str, Any]] = [{"momentum": 0.9}, {"nesterov": True}]
    for setting in some:
        with pytest.raises(UserError, match=f"with optimiser={kind!r}"):
            fedavg(optimiser=kind, **setting)
    assert fedavg(optimiser=kind, momentum=0.0).optimiser.lr == LocalAdam().lr
    assert fedavg(optimiser=kind).optimiser.lr != fedavg().optimiser.lr
    assert fedavg(optimiser=kind).optimiser == LocalAdam(decoupled=kind == "adamw")
    with pytest.raises(UserError, match="unknown optimiser 'adm'"):
        fedavg(optimiser="adm")  # type: ignore[arg-type]


def test_a_preset_lies_under_what_is_given() -> None:
    paper = fednova(preset="paper")
    assert paper.optimiser == LocalSgd(lr=0.02, momentum=0.9, weight_decay=1e-4)
    assert (paper.batch, paper.work, paper.participation.size) == (32, Epochs(epochs=2.0), 16)
    assert fednova(preset="paper", lr=0.5).optimiser == LocalSgd(lr=0.5, momentum=0.9, weight_decay=1e-4)
    assert fednova(preset="paper", steps=7).work == Steps(steps=7)
    assert vrl_sgd(preset="paper").work == Steps(steps=20)
    assert vrl_sgd(preset="paper", epochs=1.0).work == Epochs(epochs=1.0)
    assert fedprox(mu=0.5, preset="paper").corrections == (Prox(mu=0.5),)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UserError, match="preset='kdd'"):
        fedavg(preset="kdd")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="unknown setting 'preset'"):
        fedavgm(preset="paper")  # type: ignore[call-arg]


def test_the_bounds() -> None:
    assert centralised().participation == Uniform(cohort=1)
    with pytest.raises(UserError, match="one client, which holds all the data"):
        centralised(cohort=1)
    assert centralised().optimiser.keep_state
    assert not centralised(keep_state=False).optimiser.keep_state
    assert local_only().regime == "local"
