"""Multi-objective reinforcement learning: every client plays an environment under its own preference."""
