"""Layers around functional forms."""
