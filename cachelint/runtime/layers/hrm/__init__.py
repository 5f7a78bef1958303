"""Modules of the hierarchical reasoning model."""
