"""Which weights to train for next, given the results of earlier ones: the search methods of MOFL/D."""
