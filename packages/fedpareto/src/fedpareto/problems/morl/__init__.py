"""Multi-objective reinforcement learning: every client acts in an environment under its own preference."""
