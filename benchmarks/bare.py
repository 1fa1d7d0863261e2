"""FedAvg by hand in plain PyTorch, without polyrhythm: `python benchmarks/bare.py lenet5-fmnist --workers 2`.

The program itself is in the package, since `polyrhythm bench --against bare` runs it too.
"""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[1] / "src" / "polyrhythm" / "bench" / "bare.py"), run_name="__main__")
