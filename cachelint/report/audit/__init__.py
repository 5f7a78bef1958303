"""Formats of ``cachelint audit``: one module each."""
