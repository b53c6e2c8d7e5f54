"""Chapter 3 of the thesis: MOFL/D."""
