"""Linear maps, feed-forward modules and other building blocks."""
