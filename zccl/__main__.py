"""`python -m zccl`: the command line."""

import sys

from zccl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
