"""Abstract interpretation: what every expression of forward and backward may be."""
