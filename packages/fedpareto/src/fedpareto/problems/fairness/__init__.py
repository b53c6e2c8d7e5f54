"""Group fairness as a benchmark of federated multi-objective learning (chapter 5 of the thesis)."""
