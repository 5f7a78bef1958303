"""Attention, from the scaled dot product to whole modules."""
