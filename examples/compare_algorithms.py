"""Several algorithms on the same clients: a table, and a page with all figures.

python examples/compare_algorithms.py
"""

from pathlib import Path
from tempfile import mkdtemp

import fedpareto
from fedpareto_page.comparison import write_comparison

out = Path(mkdtemp(prefix="fedpareto-"))
for name in ("local", "fedavg", "fedavg+ft", "fedpref"):
    result = fedpareto.run("convex", name, clients=8, rounds=15, seeds=2, preferences="equidistant", out=out / name)
    print(f"{name:10} hypervolume {result.hypervolume:.3f}  IGD+ {result.solutions[0].indicators()['igd_plus']:.3f}")
print("page:", write_comparison(sorted(out.iterdir()), out / "comparison"))
