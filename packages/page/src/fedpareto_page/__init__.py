"""The Pareto page: run folders as they grow, in a browser."""
