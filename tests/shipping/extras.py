"""Tries each extra alone: its one feature with it and nothing else, and the words of a refusal without it.

    python tests/shipping/extras.py            # or make test-extras; many minutes, and a gigabyte while it lasts
    python tests/shipping/extras.py ui hub     # some

A bare environment holds the wheel and what it depends on. Each extra has another one, in which that one's packages are
found after its own, so that PyTorch lies on the disk once; it is deleted before the next is made.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from safetensors.numpy import save_file

sys.path.append(str(Path(__file__).parent))
from trying import ROOT, call, dashboard, environment, pip, refusal, run

SHORT = ("--clients", "2", "--method", "fedavg(cohort=2, epochs=1)", "--rounds", "1", "--model", "logistic", "--json")
STUDY = """clients = 2
method = "fedavg(cohort=2, epochs=1)"
model = "logistic"
rounds = 1
validation = 0.2

[sweep]
search = "tpe"
trials = 2

[sweep.space]
method.lr = {low = 0.01, high = 1.0, log = true}
"""


def no_files(folder: Path) -> None:
    """For what needs none."""


def parquet_table(folder: Path) -> None:
    """A table, written by this environment's own library."""
    _rows().to_parquet(folder / "rows.parquet")


def text_table(folder: Path) -> None:
    """The same as text, in a folder of its own."""
    (folder / "rows").mkdir()
    _rows().to_csv(folder / "rows" / "train.csv", index=False)


def _rows() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 40))
    return pd.DataFrame({"a": a, "b": b, "y": np.where(a + b > 0, "yes", "no")})


def pictures(folder: Path) -> None:
    """Two classes of eight pictures, written by this environment's own library."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / "pets" / name).mkdir(parents=True)
        for number in range(8):
            pixels = generator.integers(256, size=(8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "pets" / name / f"{number}.png")


def tiny_transformer(folder: Path) -> None:
    """A Llama of one layer, and texts of two classes."""
    generator = np.random.default_rng(0)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 9}
    about = {"model_type": "llama", "num_attention_heads": 2, "num_key_value_heads": 2, "pad_token_id": 0, **sizes}
    matrices = {"self_attn.q": (8, 8), "self_attn.k": (8, 8), "self_attn.v": (8, 8), "self_attn.o": (8, 8)}
    matrices |= {"mlp.gate": (16, 8), "mlp.up": (16, 8), "mlp.down": (8, 16)}
    shapes = {f"model.layers.0.{name}_proj.weight": shape for name, shape in matrices.items()}
    shapes |= {"model.embed_tokens.weight": (9, 8), "lm_head.weight": (9, 8), "model.norm.weight": (8,)}
    shapes |= {f"model.layers.0.{name}_layernorm.weight": (8,) for name in ("input", "post_attention")}
    (folder / "tiny").mkdir()
    (folder / "tiny" / "config.json").write_text(json.dumps(about))
    weights = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, folder / "tiny" / "model.safetensors")
    inputs = generator.integers(1, 9, size=(40, 5))
    np.savez(folder / "texts.npz", x=inputs, y=inputs[:, 0] % 2)


def study(folder: Path) -> None:
    """A search."""
    (folder / "tune.toml").write_text(STUDY)


class Feature(NamedTuple):
    """What an extra is for.

    Args:
        command: that needs it.
        files: makes what the command reads, in the folder where it is run.
        makes: a pattern of files that must be there afterwards.
    """

    command: Sequence[str]
    files: Callable[[Path], None] = no_files
    makes: str = "runs/runs.sqlite"


FEATURES = {
    "parquet": Feature(command=("run", "--data", "table(path=rows.parquet, target=y)", *SHORT), files=parquet_table),
    "images": Feature(command=("run", "--data", "image_folder(path=pets, size=8)", *SHORT), files=pictures),
    "hub": Feature(
        command=("run", "--data", "hub(name=rows, inputs=[a, b], target=y, test=0.2)", *SHORT), files=text_table
    ),
    "ray": Feature(command=("run", "--driver", "ray", "--workers", "1", *SHORT)),
    "sweep": Feature(command=("study", "tune.toml", "--workers", "1"), files=study),
    "privacy": Feature(command=("run", *SHORT[:3], "fedavg(cohort=2, epochs=1) | equal | dp", *SHORT[4:])),
    "secagg": Feature(command=("run", "--clients", "4", "--method", "fedavg(cohort=3, epochs=1) | secagg", *SHORT[4:])),
    "text": Feature(
        command=(
            *("run", "--data", "npz(path=texts.npz)"),
            *(*SHORT[:6], "--model", "hf(path=tiny, head=classes, rank=2)", "--json"),
        ),
        files=tiny_transformer,
    ),
    "ui": Feature(command=("ui",)),
    "tensorboard": Feature(command=("run", "--track", "tensorboard", *SHORT), makes="runs/tensorboard/**/events*"),
    "mlflow": Feature(command=("run", "--track", "mlflow", *SHORT), makes="runs/mlflow/**/mlflow.db"),
    "wandb": Feature(command=("run", "--track", "wandb", *SHORT), makes="runs/wandb/**/*.wandb"),
    "flower": Feature(command=("flower", "up", "--nodes", "2", "--set", "rounds=1")),
}


def main(names: Sequence[str]) -> int:
    os.environ |= {"WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    if unknown := [name for name in names if name not in FEATURES]:
        print(f"no such extra: {', '.join(unknown)}; there are {', '.join(FEATURES)}")
        return 2
    with tempfile.TemporaryDirectory(prefix="polyrhythm-extras-") as place:
        return _try_all(Path(place).resolve(), names or list(FEATURES))


def _try_all(place: Path, names: Sequence[str]) -> int:
    call([sys.executable, "-m", "build", "--wheel", "--outdir", str(place), str(ROOT)], cwd=place)
    (wheel,) = place.glob("*.whl")
    bare = environment(place / "bare")
    pip(bare, str(wheel), cwd=place)
    wrong = 0
    for name in names:
        begun = time.monotonic()
        try:
            size = _try(name, place / name, wheel, bare)
        except SystemExit as found:
            print(f"{name}: WRONG\n{found}", flush=True)
            wrong += 1
            continue
        print(f"{name}: works alone; {size / 1e6:.0f} MB more, {time.monotonic() - begun:.0f} s", flush=True)
    return bool(wrong)


def _try(name: str, folder: Path, wheel: Path, bare: Path) -> int:
    """Tries one extra; the bytes that it installs.

    Raises:
        SystemExit: it does not work, or is not asked for in words.
    """
    feature = FEATURES[name]
    folder.mkdir()
    feature.files(folder)
    said = refusal(bare, *feature.command, cwd=folder)
    if f"polyrhythm[{name}]" not in said:
        raise SystemExit(f"without the extra this is said, which does not name it:\n{said}")
    python = environment(folder / "environment", bare)
    before = _size(folder / "environment")
    pip(python, f"polyrhythm[{name}] @ {wheel.as_uri()}", cwd=folder)
    size = _size(folder / "environment") - before
    if name == "ui":
        run(python, "run", *SHORT, cwd=folder)
        dashboard(python, folder)
    else:
        run(python, *feature.command, cwd=folder)
    if not any(folder.glob(feature.makes)):
        raise SystemExit(f"{' '.join(feature.command)} has made no {feature.makes}")
    shutil.rmtree(folder / "environment")
    return size


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
