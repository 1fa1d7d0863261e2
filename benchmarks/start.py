"""From the command to the first round: `polyrhythm run --data digits --rounds 1` as a whole, beside `import torch`.

Whole processes, in turn, after one of each to warm the disk's cache. Processor time (user and system) as well as time
on the wall, which is as long only where the machine has nothing else to do. One JSON line.

    python benchmarks/start.py --repeats 7
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

RUN = "from polyrhythm.cli import main; main()"


def whole(*arguments: str) -> tuple[float, float]:
    """Seconds on the wall, and of processors, of one Python process."""
    # Without compiled modules on the disk, Python would compile polyrhythm anew each time.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "import_torch": ("-c", "import torch"),
            "command": ("-c", RUN, "run", "--data", "digits", "--rounds", "1", "--out", folder),
        }
        told: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(given.repeats + 1):
            for name, arguments in commands.items():
                took = whole(*arguments)
                if number:
                    told[name].append(took)
    wall, processor = ({name: statistics.median(t[i] for t in found) for name, found in told.items()} for i in (0, 1))
    print(
        json.dumps(
            {
                "wall_seconds": {name: round(s, 3) for name, s in wall.items()},
                "processor_seconds": {name: round(s, 3) for name, s in processor.items()},
                "wall_difference": round(wall["command"] - wall["import_torch"], 3),
                "processor_difference": round(processor["command"] - processor["import_torch"], 3),
            }
        )
    )


if __name__ == "__main__":
    main()
