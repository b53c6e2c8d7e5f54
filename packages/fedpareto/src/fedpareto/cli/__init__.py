"""The command line: `fedpareto …`."""

from fedpareto.cli.command import app, main

__all__ = ["app", "main"]
