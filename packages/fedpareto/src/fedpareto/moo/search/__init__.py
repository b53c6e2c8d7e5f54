"""Search methods of MOFL/D: the weights to train for next, given the results of earlier ones."""
