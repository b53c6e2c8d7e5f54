"""Checks for authors of algorithms and problems: one call that checks the whole contract."""

from fedpareto.testing.conformance import check_algorithm, check_problem

__all__ = ["check_algorithm", "check_problem"]
