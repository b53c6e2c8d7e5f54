"""Chapter 4 of the thesis: FedPref in reinforcement learning."""
