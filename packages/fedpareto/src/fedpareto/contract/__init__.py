"""The contract: what an algorithm, a problem, a learner and an engine are to each other."""
