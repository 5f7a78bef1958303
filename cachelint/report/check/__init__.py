"""Formats of ``cachelint check``: one module each."""
