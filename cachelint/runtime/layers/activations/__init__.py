"""Elementwise and gated activations."""
