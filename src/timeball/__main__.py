"""`python -m timeball` is the command line."""

from timeball.cli import main

main()
