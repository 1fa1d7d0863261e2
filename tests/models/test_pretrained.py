"""Pretrained models from folders, and their adapters; on a tiny Llama that is made on the fly."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.config.names import model
from polyrhythm.data.federation import Federation
from polyrhythm.experiments.prepared import prepare
from polyrhythm.models.adapter_files import adapter_of, is_adapter, save_adapter
from polyrhythm.models.building import build
from polyrhythm.models.low_rank import with_lora
from polyrhythm.models.pretrained import Pretrained

transformers = pytest.importorskip("transformers", reason="the extra text is not installed")
peft = pytest.importorskip("peft", reason="the extra text is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore:.*use_reentrant:UserWarning")

VOCABULARY, RANK = 19, 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    sizes: dict[str, int] = {
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "vocab_size": VOCABULARY,
    }
    config = transformers.LlamaConfig(num_attention_heads=2, num_key_value_heads=2, pad_token_id=0, **sizes)
    path = tmp_path_factory.mktemp("tiny")
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    return path


def adapted(folder: Path, **settings: Any) -> Pretrained:
    given: dict[str, Any] = {"rank": RANK, "targets": ("q_proj", "v_proj"), **settings}
    return Pretrained(path=str(folder), **given)


def texts(task: str = "next_token") -> Any:
    random = np.random.default_rng(0)
    some = [random.integers(1, VOCABULARY, size=random.integers(3, 8)).tolist() for _ in range(24)]
    targets = some if task == "next_token" else [text[0] % 3 for text in some]
    padding = pr.data.Padding(value={"input_ids": 0}, to="batch", mask="attention_mask")
    return pr.data.arrays({"input_ids": some}, targets, task=task, padding=padding)


def federation(task: str = "next_token") -> Federation:
    return pr.federate(texts(task), pr.data.Iid(), clients=4, seed=0)


def run(folder: Path, out: Path, model: Any = None, execution: pr.Execution | None = None, **settings: Any) -> pr.Run:
    recipe = pr.fedavg(cohort=2, batch=4, lr=0.5)
    given = {"federation": federation(), "model": model or adapted(folder), "recipe": recipe, "rounds": 2, **settings}
    return pr.run(pr.Experiment(**given), execution=execution or pr.Execution(), out=out)


def tokens() -> torch.Tensor:
    return torch.arange(1, 13).reshape(2, 6)


def test_an_adapter_that_is_new_is_the_base_to_the_bit(folder: Path) -> None:
    base, with_it = Pretrained(path=str(folder))(3), adapted(folder)(3)
    with torch.no_grad():
        assert torch.equal(base.eval()(tokens()).logits, with_it.eval()(tokens()).logits)


def test_the_vector_is_the_adapter(folder: Path) -> None:
    """Two layers with two adapted matrices of 8 × 8 each: r (8 + 8) numbers a matrix; half of them with A frozen."""
    names = {segment.name for segment in FlatModel(adapted(folder)(3)).layout.segments}
    assert FlatModel(adapted(folder)(3)).layout.parameters == 2 * 2 * RANK * (8 + 8)
    assert all("lora_" in name for name in names)
    half = FlatModel(adapted(folder, freeze="A")(3)).layout
    assert half.parameters == 2 * 2 * RANK * 8
    assert all(".lora_B." in segment.name for segment in half.segments)


def test_traffic_is_that_of_the_adapter(folder: Path, tmp_path: Path) -> None:
    found = run(folder, tmp_path)
    assert found.summary["bytes_up"] == found.summary["bytes_down"] == 2 * 2 * 4 * (2 * 2 * RANK * 16)
    assert found.history["test_loss"].iloc[-1] < found.history["test_loss"].iloc[0]
    assert found.history["test_perplexity"].notna().all()


def test_processes_and_a_resumed_run_give_the_same_bits(folder: Path, tmp_path: Path) -> None:
    whole = run(folder, tmp_path / "a")
    forked = run(folder, tmp_path / "b", execution=pr.Execution(driver="processes", workers=2))
    part = run(folder, tmp_path / "c", rounds=1, execution=pr.Execution(checkpoint=pr.Checkpoint(every=1)))
    experiment = pr.Experiment(
        federation=federation(), model=adapted(folder), recipe=pr.fedavg(cohort=2, batch=4, lr=0.5), rounds=2
    )
    resumed = pr.resume(experiment, part, out=tmp_path / "c")
    assert whole.summary["digest"] == forked.summary["digest"] == resumed.summary["digest"]


RANKED = ("fedex_lora", "flora", "flexlora", "hetlora")


@pytest.mark.parametrize("name", ["fedit", "ffa_lora", "rolora", "fedsa_lora", *RANKED])
def test_each_recipe_of_adapters_gives_the_same_bits_in_processes_and_resumed(
    name: str, folder: Path, tmp_path: Path
) -> None:
    more = {"rank": (2, 1)} if name in RANKED else {}
    own = {"local_test": 0.25} if name == "fedsa_lora" else {}
    recipe = getattr(pr, name)(cohort=3, batch=4, lr=0.5, **more)
    split = pr.federate(texts(), pr.data.Iid(), clients=4, seed=0, **own)
    given: dict[str, Any] = {"recipe": recipe, "federation": split}
    whole = run(folder, tmp_path / "a", **given)
    forked = run(folder, tmp_path / "b", **given, execution=pr.Execution(driver="processes", workers=2))
    part = run(folder, tmp_path / "c", **given, rounds=1, execution=pr.Execution(checkpoint=pr.Checkpoint(every=1)))
    resumed = pr.resume(pr.Experiment(**given, model=adapted(folder), rounds=2), part, out=tmp_path / "c")
    assert whole.summary["digest"] == forked.summary["digest"] == resumed.summary["digest"]
    # Where every B stays at its client, that of the server is zero, and its model the base.
    assert (whole.history["test_loss"].nunique() == 1) is (name == "fedsa_lora")


def test_a_is_drawn_by_the_seed(folder: Path) -> None:
    def first(seed: int) -> torch.Tensor:
        recipe = pr.fedavg(cohort=2, batch=4)
        given = {"federation": federation(), "model": adapted(folder), "recipe": recipe, "rounds": 1, "seed": seed}
        return prepare(pr.Experiment(**given), pr.Execution(driver="inline")).initial.weights

    assert torch.equal(first(0), first(0))
    assert not torch.equal(first(0), first(1))


def test_an_adapter_is_written_in_the_ecosystems_form_and_begins_another_run(folder: Path, tmp_path: Path) -> None:
    done = run(folder, tmp_path / "a")
    where = done.adapter(tmp_path / "adapter", model=adapted(folder))
    assert is_adapter(where)
    assert json.loads((where / "adapter_config.json").read_text())["r"] == RANK
    ours = done.model(model=adapted(folder))
    theirs = peft.PeftModel.from_pretrained(Pretrained(path=str(folder))(3), where).eval()
    with torch.no_grad():
        assert torch.equal(ours(tokens()).logits, theirs(tokens()).logits)
    assert adapter_of(ours).keys() == load_file(where / "adapter_model.safetensors").keys()
    again = run(folder, tmp_path / "b", initial=where)
    assert again.history["test_loss"].iloc[0] == done.history["test_loss"].iloc[-1]


def test_classes_have_a_head_that_learns_and_is_in_the_adapter(folder: Path, tmp_path: Path) -> None:
    done = run(folder, tmp_path / "a", adapted(folder, head="classes"), federation=federation("classification"))
    assert done.history["test_accuracy"].notna().all()
    where = done.adapter(tmp_path / "adapter", model=adapted(folder, head="classes"))
    assert any(name.endswith("score.weight") for name in load_file(where / "adapter_model.safetensors"))
    again = run(
        folder,
        tmp_path / "b",
        adapted(folder, head="classes"),
        federation=federation("classification"),
        initial=where,
    )
    assert again.history["test_loss"].iloc[0] == done.history["test_loss"].iloc[-1]


def test_it_has_a_name_in_files(folder: Path) -> None:
    made = model(f"hf(path={folder}, rank=2, targets=[q_proj, v_proj])")((6,), 3)
    assert FlatModel(made).layout == FlatModel(adapted(folder)(3)).layout
    assert FlatModel(build("hf", {"input_ids": (6,)}, 3, path=str(folder))).layout.parameters > 1000


def test_settings_that_have_no_meaning_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="without its rank"):
        Pretrained(path=str(folder), alpha=4.0)
    with pytest.raises(UserError, match=r"ends of names of its layers: .*q_proj"):
        adapted(folder, targets=("nothing",))(3)
    with pytest.raises(UserError, match="has no adapter"):
        save_adapter(torch.nn.Linear(2, 2), folder)


def spoilt(folder: Path, to: Path, **changes: Any) -> Path:
    """The folder with other things in its config.json."""
    to.mkdir()
    about = json.loads((folder / "config.json").read_text()) | changes
    (to / "config.json").write_text(json.dumps(about))
    (to / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    return to


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"auto_map": {"AutoModelForCausalLM": "code.Net"}}, "auto_map, which would run other code"),
        ({"quantization_config": {"quant_method": "x"}}, "quantization_config"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1,000,000,000"),
        ({"vocab_size": 10**15}, "vocab_size"),
        ({"hidden_size": 12}, "tiny spoilt"),
        ({"model_type": "nothing"}, "tiny spoilt"),
        ({"hidden_size": "wide"}, "tiny spoilt"),
    ],
)
def test_what_a_stranger_writes_into_its_description_is_refused(
    changes: dict[str, Any], words: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        Pretrained(path=str(spoilt(folder, tmp_path / "tiny spoilt", **changes)))(3)


def test_folders_without_a_model_are_refused(folder: Path, tmp_path: Path) -> None:
    for name in ("nowhere", "owner/name"):
        with pytest.raises(UserError, match=r"config\.json cannot be read"):
            Pretrained(path=name)(3)
    other = spoilt(folder, tmp_path / "a")
    (other / "model.safetensors").write_bytes(b"\x08" * 40)
    with pytest.raises(UserError, match=str(other)):
        Pretrained(path=str(other))(3)
    (other / "model.safetensors").rename(other / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"it has no \*\.safetensors"):
        Pretrained(path=str(other))(3)
    third = spoilt(folder, tmp_path / "b")
    (third / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="it is an adapter"):
        Pretrained(path=str(third))(3)


def test_a_folder_without_some_of_its_weights_is_refused_but_for_a_head_that_is_new(
    folder: Path, tmp_path: Path
) -> None:
    """A head's own layers learn, all of them; others would be drawn at random, and stay so."""
    lacking = spoilt(folder, tmp_path / "a")
    weights = load_file(folder / "model.safetensors")
    save_file({n: t for n, t in weights.items() if "layers.1.self_attn.q" not in n}, lacking / "model.safetensors")
    for head in ("causal", "classes"):
        with pytest.raises(UserError, match=r"its files have no model\.layers\.1\.self_attn\.q_proj\.weight"):
            adapted(lacking, head=head)(3)
    save_file({n: t for n, t in weights.items() if "lm_head" not in n}, lacking / "model.safetensors")
    with pytest.raises(UserError, match=r"its files have no lm_head\.weight"):
        adapted(lacking)(3)
    learns = [n for n, p in adapted(lacking, head="classes")(3).named_parameters() if p.requires_grad]
    assert [n for n in learns if "lora_" not in n] == ["base_model.model.score.modules_to_save.default.weight"]


def test_a_new_head_of_two_layers_learns_whole(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(vocab_size=VOCABULARY, dim=8, hidden_dim=16, n_layers=1, n_heads=2)
    transformers.DistilBertModel(config).save_pretrained(tmp_path)
    made = Pretrained(path=str(tmp_path), head="classes", rank=2, targets=("q_lin",))(3)
    learns = {n.split(".")[2] for n, p in made.named_parameters() if p.requires_grad and "lora_" not in n}
    assert learns == {"pre_classifier", "classifier"}


def test_adapters_that_are_damaged_or_of_another_form_are_refused(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(b"nothing")
    with pytest.raises(UserError, match="cannot be read"):
        run(folder, tmp_path / "runs", initial=tmp_path)
    save_file({name: tensor[:1].clone() for name, tensor in adapter_of(adapted(folder)(3)).items()}, file)
    with pytest.raises(UserError, match="an adapter of this model"):
        run(folder, tmp_path / "runs", initial=tmp_path)


@pytest.mark.parametrize("head", ["causal", "classes"])
def test_a_base_in_16_bits_stays_near_that_of_32_and_what_learns_is_float32(
    head: str, folder: Path, tmp_path: Path
) -> None:
    about = federation("next_token" if head == "causal" else "classification")
    halved = adapted(folder, head=head, dtype="bfloat16")
    kinds = {p.dtype for p in halved(3).parameters() if p.requires_grad}
    under = [p.dtype for n, p in halved(3).named_parameters() if ".base_layer." in n]
    assert kinds == {torch.float32}
    assert set(under) == {torch.bfloat16}
    slow = pr.fedavg(cohort=2, batch=4, lr=0.05)
    whole, short = (
        run(folder, tmp_path / name, model, federation=about, recipe=slow).history["test_loss"]
        for name, model in (("a", adapted(folder, head=head)), ("b", halved))
    )
    assert short.iloc[-1] != short.iloc[0]
    assert abs(short - whole).max() < 0.03 * whole.iloc[0]


def test_a_base_in_16_bits_is_of_adapters_alone(folder: Path) -> None:
    with pytest.raises(UserError, match="bfloat16 without rank"):
        Pretrained(path=str(folder), dtype="bfloat16")


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_bases_of_8_and_4_bits_are_refused_in_words(folder: Path, dtype: Any) -> None:
    with pytest.raises(UserError, match=f"(?s){dtype}.*bfloat16.*{dtype[3:]} bits need kernels of CUDA cards"):
        Pretrained(path=str(folder), rank=2, dtype=dtype)


@pytest.mark.parametrize("settings", [{"micro_batch": 2}, {"recompute": True}])
def test_less_memory_in_a_step_leaves_an_adapters_run_as_it_was(
    settings: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    """Pieces of a batch up to rounding, recomputed activations to the bit."""
    torch_engine = pr.Execution(engine="torch")
    plain = run(folder, tmp_path / "a", execution=torch_engine)
    less = run(folder, tmp_path / "b", execution=pr.Execution(engine="torch", **settings))
    losses = [found.history["test_loss"].iloc[-1] for found in (plain, less)]
    assert losses[1] == (losses[0] if "recompute" in settings else pytest.approx(losses[0], rel=1e-5))


def test_the_mean_over_a_texts_own_tokens_goes_into_the_head(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module: Any = Pretrained(path=str(folder), head="classes", pooling="mean")(3).eval()
    base = transformers.AutoModel.from_pretrained(folder).eval()
    text = torch.tensor([[3, 5, 7]])
    by_hand = base(input_ids=text).last_hidden_state.mean(1) @ module.head.weight.T + module.head.bias
    padded, mask = torch.tensor([[3, 5, 7, 0, 0]]), torch.tensor([[1, 1, 1, 0, 0]])
    assert torch.allclose(module(input_ids=padded, attention_mask=mask), by_hand, atol=1e-6)
    about = {"head": "classes", "pooling": "mean"}
    done = run(folder, tmp_path / "a", adapted(folder, **about), federation=federation("classification"))
    where = done.adapter(tmp_path / "adapter", model=adapted(folder, **about))
    tensors = load_file(where / "adapter_model.safetensors")
    assert {"base_model.model.head.weight", "base_model.model.head.bias"} <= tensors.keys()
    assert len(tensors) == 2 + 2 * 2 * 2
    begun = run(
        folder, tmp_path / "b", adapted(folder, **about), federation=federation("classification"), initial=where
    )
    assert begun.status == "finished"


@pytest.mark.parametrize("by", ["peft", "with_lora"])
@pytest.mark.filterwarnings("error:Found missing adapter keys")
def test_plain_peft_puts_an_adapter_of_a_mean_on_the_encoder(by: str, folder: Path, tmp_path: Path) -> None:
    """The head is in the file, on the mean over a text's tokens of what the encoder gives."""
    if by == "peft":
        made: Any = adapted(folder, head="classes", pooling="mean")(3)
    else:
        made = with_lora(Pretrained(path=str(folder), head="classes", pooling="mean"), rank=RANK, targets=["q_proj"])(3)
    torch.manual_seed(0)
    for name, parameter in made.named_parameters():
        if parameter.requires_grad and "lora" in name:
            torch.nn.init.normal_(parameter)
    save_adapter(made, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        encoder = peft.PeftModel.from_pretrained(transformers.AutoModel.from_pretrained(folder), tmp_path).eval()
    head = load_file(tmp_path / "adapter_model.safetensors")
    given, mask = tokens(), torch.ones(2, 6, dtype=torch.int64)
    with torch.no_grad():
        mean = encoder(input_ids=given, attention_mask=mask).last_hidden_state.mean(1)
        logits = mean @ head["base_model.model.head.weight"].T + head["base_model.model.head.bias"]
        assert torch.allclose(logits, made.eval()(input_ids=given, attention_mask=mask), atol=1e-6)
        plain = transformers.AutoModel.from_pretrained(folder).eval()(input_ids=given).last_hidden_state.mean(1)
    assert not torch.allclose(mean, plain, atol=1e-3), "the adapter says something"
    about = json.loads((tmp_path / "adapter_config.json").read_text())
    assert about["base_model_name_or_path"] == str(folder)


def test_of_a_frozen_base_the_head_alone_learns(folder: Path, tmp_path: Path) -> None:
    poolings: tuple[Literal["own", "mean"], ...] = ("own", "mean")
    for pooling in poolings:
        about = Pretrained(path=str(folder), head="classes", freeze="base", pooling=pooling)
        module = about(3)
        learns = [name for name, of in module.named_parameters() if of.requires_grad]
        assert {name.split(".")[0] for name in learns} <= {"head", "score"}
        assert not any(part.p for part in module.modules() if isinstance(part, torch.nn.Dropout))
        done = run(folder, tmp_path / pooling, about, federation=federation("classification"))
        assert done.visits["bytes_up"].iloc[0] == 4 * sum(p.numel() for p in module.parameters() if p.requires_grad)
    for wrong in ({"freeze": "base"}, {"pooling": "mean"}, {"head": "classes", "freeze": "base", "rank": 2}):
        with pytest.raises(UserError):
            Pretrained(path=str(folder), **wrong)
