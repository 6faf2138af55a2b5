"""``python -m sixfold``: the same as the command ``sixfold``."""

import sys

from sixfold.cli import main

if __name__ == "__main__":
    sys.exit(main())
