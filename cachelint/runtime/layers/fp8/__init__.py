"""Layers that compute in eight-bit floating point."""
