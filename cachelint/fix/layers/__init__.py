"""Layers that keep their state on ``self``: what is live is read, what is cheap is derived, the rest is registered.

``view`` reads a class, ``live`` finds forward's inputs in backward, ``derive`` runs the shortest slice of forward again,
``register`` hands a field to the saver where it is made, ``contract`` knows where the saver comes from, and ``assemble``
puts them together.
"""
