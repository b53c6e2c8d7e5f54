"""`python -m fedpareto` is `fedpareto`."""

from fedpareto.cli import main

if __name__ == "__main__":
    main()
