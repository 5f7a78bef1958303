"""Summing over axes."""
