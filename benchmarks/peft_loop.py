"""Seconds of a step of a Llama with peft's adapters: ours beside plain peft in a loop.

The model is made by transformers with drawn weights, so no file is needed. Plain peft is one client after the other,
with `torch.optim.SGD` over what learns and the loss that the model itself gives. Both have the same sizes of batches,
rank and rate, and take turns. One JSON line, with the median over rounds of the ratio of each two side by side.

    chrt -r 1 python benchmarks/peft_loop.py
    chrt -r 1 python benchmarks/peft_loop.py --width 256 --layers 6
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base.threads import settled_memory
from polyrhythm.experiments.prepared import prepare

sys.path.insert(0, str(Path(__file__).parent))
import lora

VOCABULARY = 512


def llama(width: int, layers: int, rank: int) -> nn.Module:
    """One with adapters on all linear layers, whose weights depend on nothing but its sizes."""
    import peft
    import transformers

    sizes = {"hidden_size": width, "intermediate_size": 3 * width, "num_hidden_layers": layers}
    heads = {"num_attention_heads": max(1, width // 32), "num_key_value_heads": max(1, width // 32)}
    config = transformers.LlamaConfig(**sizes, **heads, vocab_size=VOCABULARY, pad_token_id=0, use_cache=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        base = transformers.LlamaForCausalLM(config)
        about = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
        made: nn.Module = peft.get_peft_model(base, about)
    return made.train()


def of_model(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The loss that a model of transformers gives itself."""
    loss: Tensor = model(input_ids=inputs, labels=targets).loss
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--length", type=int, default=64, help="tokens of a text")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--held", type=int, default=40, help="texts of each")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model = llama(given.width, given.layers, given.rank)
    data = lora.texts(given.clients * given.held, vocabulary=VOCABULARY, length=given.length)
    federation = pr.federate(data, pr.data.Iid(), given.clients, 0)
    recipe = pr.fedavg(cohort=given.clients, epochs=1, batch=given.batch, lr=0.05)
    made = pr.Experiment(federation=federation, model=model, recipe=recipe, rounds=given.rounds + 3)
    of = prepare(made, pr.Execution(engine="torch", driver="inline"))
    theirs = lora.by_hand(made, model, given.batch, 0.05, torch.device("cpu"), loss=of_model)
    sides: tuple[Iterator[None], ...] = (lora.ours(of), theirs)
    times: tuple[list[float], ...] = ([], [])
    with settled_memory():  # as a run in this process has it; both sides take no memory anew in each step
        for number in range(given.rounds + 1):
            for side, found in zip(sides, times, strict=True):
                begun = time.perf_counter()
                next(side)
                if number:  # in the first everything is made ready
                    found.append(time.perf_counter() - begun)
    steps = given.clients * -(-given.held // given.batch)
    ours_s, peft_s = (statistics.median(found) / steps for found in times)
    ratio = statistics.median(one / other for one, other in zip(*times, strict=True))
    sizes = {"parameters": sum(p.numel() for p in model.parameters()), "learn": of.initial.weights.numel()}
    print(json.dumps({**sizes, "ours_s": round(ours_s, 5), "peft_s": round(peft_s, 5), "ratio": round(ratio, 3)}))


if __name__ == "__main__":
    main()
