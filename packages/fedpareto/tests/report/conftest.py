"""Fixtures of the report's tests: folders of made-up runs."""

from __future__ import annotations

from run_folders import write_run, write_run_at  # noqa: F401
