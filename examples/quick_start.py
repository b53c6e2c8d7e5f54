"""Five lines: run FedPref, look at the front.

python examples/quick_start.py
"""

import fedpareto

result = fedpareto.run("synthetic", "fedpref", clients=10, rounds=10, preferences="equidistant")
print(f"hypervolume {result.hypervolume:.3f}; the front (accuracy, demographic parity):")
for accuracy, parity in result.solutions[0].front():
    print(f"  {accuracy:.3f}  {parity:.3f}")
