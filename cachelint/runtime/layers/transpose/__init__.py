"""Permuting axes."""
