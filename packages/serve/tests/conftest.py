from __future__ import annotations

from served_runs import fedpref_run, praffl_run  # noqa: F401
