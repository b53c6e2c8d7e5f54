"""What do algorithms do when clients fail? Three in ten drop out each round, one in ten sends a damaged update.

python examples/failing_clients.py
"""

import json
from pathlib import Path
from tempfile import mkdtemp

import fedpareto

faults = {"dropout": 0.3, "corrupt": 0.1}
for name in ("fedavg", "fedpref"):
    whole = fedpareto.run("convex", name, preferences="equidistant")
    out = Path(mkdtemp(prefix="fedpareto-")) / name
    harmed = fedpareto.run("convex", name, preferences="equidistant", faults=faults, quorum=0.2, out=out)
    events = [json.loads(line) for line in (out / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    print(f"{name}: hypervolume {whole.hypervolume:.3f} without faults, {harmed.hypervolume:.3f} with {len(events)}")
    print(f"  such as: round {events[0]['round']}, client {events[0]['client']}: {events[0]['reason']}")
