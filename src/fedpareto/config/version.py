"""The version of fedpareto."""

VERSION = "0.1.0"
