"""cachelint: a linter for tensors that forward leaves behind for backward."""

__version__ = "0.1.0"
