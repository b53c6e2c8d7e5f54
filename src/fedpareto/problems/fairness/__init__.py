"""Group fairness as the honest benchmark of federated multi-objective learning (chapter 5 of the thesis)."""
