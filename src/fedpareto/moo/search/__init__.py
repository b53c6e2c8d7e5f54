"""Which weights to train for next, given what earlier ones led to: the searches that MOFL/D can be led by."""
