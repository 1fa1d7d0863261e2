"""From names to things."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import polyrhythm as pr
from polyrhythm.base.consent import Trust
from polyrhythm.base.errors import UserError
from polyrhythm.config import names
from polyrhythm.config.configuration import configure
from polyrhythm.config.names import model
from polyrhythm.fleet import Every, FixedLinks, Markov, phones
from polyrhythm.methods.order.base import Curriculum
from polyrhythm.methods.order.pacing import Pacing
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, FisherTrace, GradientNorm
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.budgets import Levels, SlowShare
from polyrhythm.models.tasks import Classification


@pytest.mark.parametrize(
    ("text", "recipe"),
    [
        ("fedavg", pr.fedavg()),
        (
            "fedprox(mu=0.01, cohort=10, epochs=2, batch=10, lr=0.01) | server_adam(lr=0.01)",
            pr.fedprox(mu=0.01, cohort=10, epochs=2, batch=10, lr=0.01) | pr.parts.server_adam(lr=0.01),
        ),
        (
            "scaffold | prox(mu=1) | sweep | server-momentum",
            pr.scaffold() | pr.parts.prox(mu=1) | pr.parts.sweep() | pr.parts.server_momentum(),
        ),
        ("fedavg(batch=none, schedule=cosine(floor=0.1))", pr.fedavg(batch=None, schedule=pr.parts.cosine(floor=0.1))),
        ("fedavg(schedule=power)", pr.fedavg(schedule=pr.parts.power())),
        ("moon(layer='features', preset=paper)", pr.moon(layer="features", preset="paper")),
        ("ccfl(budgets=budgets(levels=2))", pr.ccfl(budgets=Levels(levels=2))),
        ("cc_fedadam(max_delay=3, spread=1, cohort=4)", pr.cc_fedadam(max_delay=3, spread=1, cohort=4)),
        ("cc_fedadam(clock=event, buffer=2)", pr.cc_fedadam(clock="event") | pr.parts.buffer(size=2)),
        ("fedasync(rule=hinge, a=5, alpha=1)", pr.fedasync(rule="hinge", a=5.0, alpha=1.0)),
        ("afl(variant=cs, participation=on_arrival)", pr.afl(variant="cs", participation="on_arrival")),
        (
            "fedavg | equal | rolling(concurrency=8) | buffer(size=5) | staleness",
            pr.fedbuff(concurrency=8),
        ),
        ("mifa(unheard=wait)", pr.fedavg() | pr.parts.equal() | pr.parts.last_updates(unheard="wait")),
        (
            "fedavg | critical_periods(detector=fisher_trace, watch=[gradient_norm(reduce=sum)])",
            pr.fedavg() | CriticalPeriods(detector=FisherTrace(), watch=(GradientNorm(reduce="sum"),)),
        ),
        (
            "fedavg | critical_periods(detector=fisher_trace, watch=[fisher_trace(labels=model)])",
            pr.fedavg() | CriticalPeriods(detector=FisherTrace(), watch=(FisherTrace(labels="model"),)),
        ),
        (
            "fedavg | curriculum(score=both, pacing=pacing(family=root, a=0.5))",
            pr.fedavg() | Curriculum(score="both", pacing=Pacing(family="root", a=0.5)),
        ),
        ("fedavg | skip_silently(schedule=round_robin)", pr.fedavg() | pr.parts.skip_silently(schedule="round_robin")),
        ("curriculum_fl(pacing=root)", pr.curriculum_fl(pacing="root")),
        ("oort(alpha=1) | over-select", pr.oort(alpha=1) | pr.parts.over_select()),
        ("fedavg(cohort=4) | loss_sampling(d=9)", pr.fedavg(cohort=4) | pr.parts.loss_sampling(d=9)),
        (
            "power_of_choice(cohort=4, d=9) | tier_sampling(probabilities=[1, 0], tiers=2)",
            pr.power_of_choice(cohort=4) | pr.parts.tier_sampling(tiers=2, probabilities=(1, 0)),
        ),
        ("fedavg | compress_top_k(share=0.01)", pr.fedavg() | pr.parts.compress_top_k(share=0.01)),
        ("fedavg | compress-int8(error_feedback=false)", pr.fedavg() | pr.parts.compress_int8(error_feedback=False)),
        ("fedavg | compress_int8 | lossless", pr.fedavg()),
        ("fedavg | partial_work(seconds=30)", pr.fedavg() | pr.parts.partial_work(seconds=30)),
        ("fedprox(mu=0.1, partial=30)", pr.fedprox(mu=0.1, partial=30)),
        ("heterofl(ratio=[1, 0.25], scaler=false)", pr.heterofl(ratio=(1.0, 0.25), scaler=False)),
        ("fedavg | width_prefix(by=memory)", pr.fedavg() | pr.parts.width_prefix(by="memory")),
        ("fedavg | rolling_window | whole", pr.fedavg()),
    ],
)
def test_text_and_python_give_the_same_recipe(text: str, recipe: Recipe) -> None:
    assert names.recipe(text).digest == recipe.digest


@pytest.mark.parametrize("name", sorted(names.RECIPES.keys() & names.PARTS.keys()))
def test_on_the_right_of_a_pipe_a_name_is_a_part(name: str) -> None:
    """First it is the recipe, then the part of the same name; the two are the same answer."""
    recipe, piped = names.recipe(name), names.recipe(f"fedavg | {name}")
    assert recipe.title == name
    assert piped.title == f"fedavg | {name}"
    assert piped.participation == recipe.participation


def test_every_recipe_and_part_can_be_named() -> None:
    for name in names.RECIPES:
        assert isinstance(names.recipe(name), Recipe)
    for name, part in names.PARTS.items():
        needed = {"every": 5, "gamma": 0.9}
        given = ", ".join(f"{f}={v}" for f, v in needed.items() if f in part.__dataclass_fields__)
        of_all = ("last_updates", "last_models", "stale_updates", "participation_intervals", "dp", "secagg")
        of_rounds = ("residual_in_base", "stack_in_base", "decomposed_average", "length_weighted_average")
        bases = dict.fromkeys((*of_rounds, "alternate_factors"), "fedavg")
        bases |= {**dict.fromkeys(of_all, "fedavg | equal"), "over_select": "fedavg", "personal_first": "fedper"}
        bases["nearest_prototype"] = "fedavg | prototypes"
        base = {**bases, "shared_moments": "fedavg | local_amsgrad"}.get(name, "fedavg | buffer")
        assert isinstance(names.recipe(f"{base} | {name}({given})"), Recipe)


@pytest.mark.parametrize(
    ("text", "found", "fix"),
    [
        ("fedprx(mu=1)", "unknown recipe 'fedprx'", "'fedprox'"),
        ("fedavg | serveradam", "unknown part 'serveradam'", "'server_adam'"),
        ("fedavg | compress(share=0.1)", "unknown part 'compress'", "'compress_top_k'"),
        ("fedavg | compress_top_k(share=2)", "share = 2", "0.01"),
        ("fedavg | width_prefix(ratio=0)", "ratio = 0", "give ratio another value"),
        ("fedavg | rolling_window(redrawn=true, by=speed)", "redrawn=true with by='speed'", "leave one"),
        ("fedavg | width_prefix(ratio=[1, 0.5], shares=[1])", "1 shares for 2 ratios", "leave shares out"),
        ("scaffold | rolling_window", "rolling_window with control_variates", "use width_prefix"),
        ("moon | depth_prefix", "depth_prefix with model_contrast", "use width_prefix"),
        ("ccfl | rolling_window", "rolling_window with skip_and_estimate", "use width_prefix"),
        ("fedavg(keep_state=true) | random_width", "random_width with local_sgd(keep_state=true)", "use width_prefix"),
        ("local_only | width_prefix", "nothing is exchanged", "leave width_prefix out"),
        ("centralised | width_prefix", "a recipe that is centralised", "start from fedavg"),
        ("fedavg | width_prefix | geometric_median", "width_prefix with geometric_median", "leave width_prefix out"),
        ("fedexp | width_prefix", "width_prefix with server_extrapolation", "leave width_prefix out"),
        (
            "fedavg | compress_int8 | skip_and_resend_model",
            "compress_int8 with skip_and_resend_model",
            "leave compress_int8",
        ),
        ("fedavg(mu=1)", "unknown setting 'mu' in fedavg", ""),
        ("fedprox(m=1)", "unknown setting 'm' in fedprox", "'mu'"),
        ("prox(mu=1)", "begins with a part", "fedavg | prox(mu=1)"),
        ("fedavg | fedprox", "a whole recipe (fedprox) on the right", "start from fedprox"),
        ("fedavg(1)", "1 has no name", "name=1"),
        ("fedavg | exponential", "exponential without gamma", "gamma"),
        ("fedavg(schedule=cosin)", "unknown schedule 'cosin'", "'cosine'"),
        ("fedavg | critical_periods(detector=fisher_trace(labels=mine))", "labels = 'mine'", "'data'"),
        ("fedavg | skip_silently(schedule=cosine)", "schedule = 'cosine'", "'ad_hoc'"),
        ("fedavg(lr=fast)", "fedavg: lr = 'fast'", "give lr another value"),
        ("scaffold | dynamic_regularisation", "control_variates and dynamic_regularisation", "keep"),
        ("scaffold(optimiser=adam)", "control_variates with local_adam", "sgd"),
        ("fedavg(epochs=1, steps=2)", "epochs=1 and steps=2", "leave one"),
        ("fedavg | staleness(rule=cutoff, a=1)", "a = 1 with rule='cutoff'", "leave a out"),
        ("fedavg | staleness(rule=constant, b=1)", "b = 1 with rule='constant'", "leave b out"),
        ("fedavg | staleness(rule=delay_adaptive)", "rule='delay_adaptive' without b", "b=5"),
        ("fedavg | staleness(rule=linear)", "rule = 'linear'", "'polynomial'"),
        ("fedbuff(concurrency=3, cohort=4)", "concurrency=3 and cohort=4", "leave one"),
        ("cc_fedadam(clock=event, max_delay=3)", "max_delay=3 with clock='event'", "leave max_delay out"),
        ("cc_fedadam(clock=sundial)", "cc_fedadam: clock = 'sundial'", "give clock another value"),
        ("cc_fedadam(clock=sample)", "cc_fedadam: clock = 'sample'", "did you mean 'sampled'?"),
        ("fedavg | staleness(rule=polynomal)", "rule = 'polynomal'", "did you mean 'polynomial'?"),
    ],
)
def test_a_refusal_says_what_and_what_to_do(text: str, found: str, fix: str) -> None:
    with pytest.raises(UserError) as caught:
        names.recipe(text)
    assert found in caught.value.found
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("fedprox(m=1, lr=fast)", ["unknown setting 'm' in fedprox", "fedprox: lr = 'fast'"]),
        ("fedavg | prox(mu=-1) | exponential | topk", ["prox: mu = -1", "exponential without gamma", "part 'topk'"]),
        ("fedavg | server_adam(lr=0, beta1=2)", ["server_adam: lr = 0", "server_adam: beta1 = 2"]),
    ],
)
def test_all_that_is_wrong_in_a_text_is_said_together(text: str, found: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        names.recipe(text)
    assert len(caught.value.mistakes) == len(found)
    for mistake, words in zip(caught.value.mistakes, found, strict=True):
        assert words in mistake.found
        assert mistake.found in caught.value.found


def test_fleets_and_their_budgets() -> None:
    assert names.fleet("uniform").budgets is None
    assert names.fleet('uniform | budgets(levels=4, order="code")').budgets == Levels(levels=4, order="code")
    assert names.fleet("uniform | slow_share(share_slow=0.5, period=8)").budgets == SlowShare(share_slow=0.5, period=8)
    with pytest.raises(UserError, match="unknown fleet"):
        names.fleet("unifrm")
    with pytest.raises(UserError, match="unknown part of a fleet"):
        names.fleet("uniform | faulty")
    for text, found in (("tiers | uniform", "source uniform after a pipe"), ("tiers | buffer", "buffer in a fleet")):
        with pytest.raises(UserError, match=found):
            names.fleet(text)
    with pytest.raises(UserError, match="markov in a method"):
        names.recipe("fedavg | markov(mean_on=60)")


def test_fleets_of_every_source_and_part() -> None:
    """Whatever needs no file can be named alone; parts of one kind take each other's place."""
    for source in names.DEVICES.keys() - {"listed_devices", "device_trace"}:
        assert isinstance(names.fleet(source).devices, names.DEVICES[source])
    for part in names.OF_FLEETS.keys() - {"user_speeds", "bandwidth", "availability", "arrivals"}:
        made = names.fleet(f"tiers(slowdown=[1, 2]) | {part.replace('_', '-')}")
        kinds = [type(value) for value in vars(made).values()]
        assert names.OF_FLEETS[part] in kinds
    fleet = names.fleet("phones | markov(mean_on=60, mean_off=30) | links(down=1e6) | poisson | every(seconds=60)")
    assert fleet == phones() | Markov(mean_on=60, mean_off=30) | FixedLinks(down=1e6) | Every(seconds=60)


def test_fleets_from_files(tmp_path: Path) -> None:
    capacity, bandwidth = tmp_path / "c.csv", tmp_path / "b.csv"
    capacity.write_text("computation_ms_per_sample,communication_kbps\n5,8\n")
    bandwidth.write_text("trace,time_s,mbps\na,0,1\na,5,1\n")
    one = names.fleet(f"trace(capacity={capacity}, bandwidth={bandwidth})")
    other = names.fleet(f"device-trace(path={capacity}) | bandwidth(path={bandwidth})")
    assert one == other
    piped = names.fleet(f"tiers | links(down=1) | budgets | trace(bandwidth={bandwidth})")
    assert piped == names.fleet(f"tiers | budgets | bandwidth(path={bandwidth})")
    assert names.fleet(f"tiers | trace(capacity={capacity}, bandwidth={bandwidth})") == one
    with pytest.raises(UserError, match="trace without any file"):
        names.fleet("tiers | trace")
    assert names.fleet(f"device_trace(path={capacity})").links == one.devices
    with pytest.raises(UserError, match="no such file"):
        names.fleet("trace(capacity=nowhere.json)")
    with pytest.raises(UserError, match="device_trace without path"):
        names.fleet("device_trace")


def test_a_fleet_begins_with_a_source() -> None:
    with pytest.raises(UserError) as refused:
        names.fleet("markov | faults(dropout=0.1)")
    assert "uniform | markov" in refused.value.fix


def test_tasks_with_settings() -> None:
    assert names.task("multilabel(k=3, labels=sum)") == pr.task("multilabel", k=3, labels="sum")
    assert names.task("next-character(smoothing=0.1)") == pr.task("next_character", smoothing=0.1)
    assert names.task("classification") == pr.task("classification")
    for text, found in (
        ("clasification", "unknown task 'clasification'"),
        ("multilabel(smoothing=0.1)", "unknown setting 'smoothing' in multilabel"),
        ("multilabel(k=0)", "k = 0"),
        ("classification(smoothing=1)", "smoothing = 1"),
    ):
        with pytest.raises(UserError) as caught:
            names.task(text)
        assert found in caught.value.found


MINE = """
def kappa(outputs, targets):
    return 0.5

class Focal:
    def __init__(self, gamma: float = 2.0):
        self.gamma = gamma

    def __call__(self, outputs, targets):
        return (outputs.logsumexp(dim=1) - outputs.gather(1, targets[:, None])[:, 0]) * self.gamma
"""


def test_metrics_and_losses_of_ones_own_are_named_by_import_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "judges_of_mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)  # type: ignore[no-untyped-call]
    trust = Trust(("judges_of_mine",))
    text = "classification(metrics=[auc, judges_of_mine:kappa], loss_function=judges_of_mine:Focal(gamma=1.5))"
    with pytest.raises(UserError, match="was not imported, since you have not named judges_of_mine"):
        names.task(text)
    made = names.task(text, trust)
    assert isinstance(made, Classification)
    assert made.headline == "auc"
    assert made.metrics_read == ("accuracy", "auc", "kappa")
    assert getattr(made.loss_function, "gamma", None) == 1.5
    assert made.describe()["loss_function"] == "judges_of_mine:Focal(gamma=1.5)"
    assert names.task("regression(metrics=judges_of_mine:kappa)", trust).headline == "kappa"
    for wrong, found in (
        ("classification(metrics=[judges_of_mine:kapa])", "unknown metric 'kapa'"),
        ("classification(loss_function=judges_of_mine:Focal(gama=1))", "unknown setting 'gama'"),
        ("classification(loss_function=judges_of_mine:Focal(gamma=high))", "gamma = 'high'"),
        ("classification(metrics=[os:getcwd])", "which is the standard library's"),
        ("classification(class_weights=even)", "class_weights = 'even'"),
    ):
        with pytest.raises(UserError) as caught:
            names.task(wrong, trust)
        assert found in caught.value.found


def test_models_with_settings_heads_and_paths() -> None:
    shape, outputs = (1, 8, 8), 10
    small = names.model("mlp(hidden=[5])")(shape, outputs)
    assert sum(p.numel() for p in small.parameters()) == 64 * 5 + 5 + 5 * 10 + 10
    headed = names.model("with_projection(mlp(hidden=[5]), size=7)")(shape, outputs)
    assert headed.projection(torch.zeros(2, 5)).shape == (2, 7)
    adapted = names.model("with_lora(mlp(hidden=[5]), rank=2)")(shape, outputs)
    assert sum(p.numel() for p in adapted.parameters() if p.requires_grad) == 2 * (64 + 5) + 5 * 10 + 10
    with pytest.raises(UserError, match="with_lora") as caught:
        names.model("with_lora(rank=2)")
    assert "with_lora(mlp, rank=8)" in caught.value.expected
    own = names.model("worker_models:Fussy(features=64)", Trust(("worker_models",)))
    assert callable(own)
    with pytest.raises(UserError, match="have not named worker_models"):
        names.model("worker_models:Fussy(features=64)")
    with pytest.raises(UserError, match="an installed package's"):
        names.model("torch.nn:Identity", Trust(("torch",)))
    with pytest.raises(UserError, match="unknown model"):
        names.model("lenet6")
    with pytest.raises(UserError, match="could not be imported"):
        names.model("no_such_module:Net")


def test_adapters_after_a_pipe_are_part_of_the_model() -> None:
    """As one writes a method's parts; with hf it is peft's adapter, with any other model ours."""
    piped, written = model("mlp(hidden=[8]) | lora(rank=2)"), model("with_lora(mlp(hidden=[8]), rank=2)")
    of_both = [dict(make((4,), 3).named_parameters()).keys() for make in (piped, written)]
    assert of_both[0] == of_both[1]
    made = configure(None, {"model": "hf(path=x) | lora(rank=2, targets=[q_proj])"}, [])
    assert made.model == "hf(path=x, rank=2, targets=[q_proj])"
    assert configure(None, {"model": "mlp | projection | lora"}, []).model == "with_lora(with_projection(mlp))"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mlp | prox", "unknown part of a model 'prox'"),
        ("mlp | lora(8)", r"settings as name=value, as in mlp \| lora\(rank=8\)"),
        ("hf(path=x, rank=2) | lora(rank=4)", "rank is given twice"),
        ("hf(path=x, task=causal)", r"write hf\(path=x, head=\"causal\"\)"),
        ("hf(path=x, task=SEQ_CLS) | lora", 'head="classes", rank=8'),
    ],
)
def test_what_cannot_stand_after_a_models_pipe_is_told(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        model(text)
