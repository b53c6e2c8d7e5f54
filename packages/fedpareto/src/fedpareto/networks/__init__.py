"""Stacked networks: parameters `{name: [n, ...]}`, inputs `[n, b, ...]`, one call for n clients."""
