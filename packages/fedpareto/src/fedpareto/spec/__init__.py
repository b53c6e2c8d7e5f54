"""The spec of a run: its keys, its checks, and what they make."""
