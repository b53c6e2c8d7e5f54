"""The six goals of the largest fairness problem."""

SIX = (
    "accuracy",
    "demographic-parity:gender",
    "demographic-parity:race",
    "equal-opportunity:gender",
    "equal-opportunity:race",
    "equalised-odds:gender",
)
