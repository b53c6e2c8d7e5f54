"""The version of fedpareto."""

VERSION = "0.2.0"
