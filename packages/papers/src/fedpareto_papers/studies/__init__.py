"""Comparisons of our own: searches for weights, and scalarisations of a set on small problems."""
