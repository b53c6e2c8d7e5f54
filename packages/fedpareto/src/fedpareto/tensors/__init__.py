"""Tensors of whole federations: layouts of parameters, rows, streams of random numbers, recorded and compiled work."""
