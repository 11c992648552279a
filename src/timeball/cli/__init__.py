"""The command line: argv in, exit status out (0, 1 failed, 2 usage or bad input, 3 not found, 4 conflict)."""

from timeball.cli.main import main

__all__ = ["main"]
