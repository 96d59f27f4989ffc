"""`python -m purser`: the command `purser`, where its script is not on the PATH."""

from purser.cli import main

if __name__ == "__main__":
    main()
