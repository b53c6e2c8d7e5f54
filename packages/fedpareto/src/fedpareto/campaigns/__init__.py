"""Many runs: grids, sweeps, matrices and tuning."""
