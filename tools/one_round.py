"""One round, followed: how much of our own code one further round passes through.

    python tools/one_round.py [ALGORITHM ...]

Calls of our own code (functions, comprehensions, lambdas, and generators each time they go on) in a round of 6 clients
on `convex`, with one thread and one stack, both evaluations included: those of 5 rounds less those of 4.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import fedpareto
from fedpareto.contract.registry import algorithm_class

ROUNDS = 4
ALGORITHMS = ("fedavg", "fedpref", "fedmgda-plus", "fedcmoo")
LOOP = ("experiment.py", "loop.py")
"""The file of the loop over rounds."""
OURS = str(Path(fedpareto.__file__).parent.parent.parent)


def followed(algorithm: str, rounds: int) -> tuple[Counter[tuple[str, str]], int]:
    """How often each function of ours is called, and frames between the loop and the algorithm's `train`."""
    calls: Counter[tuple[str, str]] = Counter()
    depths: list[int] = []
    train = algorithm_class(algorithm).train.__code__

    def see(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not is_ours(frame):
            return
        calls[code.co_filename, code.co_qualname] += 1
        if code is train:
            depths.append(between(frame))

    sys.setprofile(see)
    try:
        fedpareto.run("convex", algorithm, clients=6, rounds=rounds, engine={"threads": 1, "chunk": 6})
    finally:
        sys.setprofile(None)
    return calls, max(depths)


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs code of this project."""
    return frame.f_code.co_filename.startswith(OURS) and "site-packages" not in frame.f_code.co_filename


def between(frame: FrameType) -> int:
    """Frames of ours from the outermost one of the loop's file down to this one, both not counted."""
    ours = []
    above = frame.f_back
    while above is not None:
        ours += [above] if is_ours(above) else []
        above = above.f_back
    return max(place for place, one in enumerate(ours) if Path(one.f_code.co_filename).name in LOOP)


def main() -> None:
    """Prints a line for each algorithm."""
    for name in sys.argv[1:] or ALGORITHMS:
        followed(name, 1)  # What is imported or made once.
        fewer, _ = followed(name, ROUNDS)
        more, depth = followed(name, ROUNDS + 1)
        round_of = Counter({one: more[one] - fewer[one] for one in more if more[one] > fewer[one]})
        files = {file for file, _ in round_of}
        print(f"{name}: {sum(round_of.values())} calls, {len(round_of)} functions, {len(files)} files, {depth} frames")


if __name__ == "__main__":
    main()
