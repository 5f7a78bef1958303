"""Normalization over features or channels."""
