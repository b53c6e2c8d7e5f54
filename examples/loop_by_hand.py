"""The loop by hand: what `fedpareto.run` does, in ten lines of which you may change any.

python examples/loop_by_hand.py
"""

from fedpareto import Federation, LocalEngine, make_algorithm
from fedpareto.problems.convex import Convex

problem, algorithm = Convex(), make_algorithm("fedpref", {"patience": 2})
federation = Federation.create(problem, clients=6, seed=0, preferences="equidistant")
setting = federation.setting(problem, rounds=15)
engine = LocalEngine(algorithm, problem, problem.learner(), [federation], [setting])

state = algorithm.begin(engine.settings[0])
while state.round < setting.rounds:
    tasks = algorithm.ask(state)  # who does what, from which model
    replies = engine.run(tasks).replies  # all clients at once, as one tensor program
    state = algorithm.tell(state, replies)  # the paper's update
models = engine.models(0, algorithm.solutions(state))

# Not part of the loop: look at the result.
values = engine.run([], evaluate=algorithm.solutions(state)).evaluations.sent
for client, of_client in values.items():
    wish = ", ".join(f"{weight:.2f}" for weight in federation.preferences[client])
    got = ", ".join(f"{value:.3f}" for value in of_client[engine.split_names.index("test")])
    print(f"client {client} wants ({wish}) and gets ({got})")
