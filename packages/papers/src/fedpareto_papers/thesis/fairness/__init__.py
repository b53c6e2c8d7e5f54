"""Chapter 5 of the thesis: accuracy and fairness."""
