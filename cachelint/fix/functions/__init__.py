"""The remedy for functions around a ``ctx``: tensors move from attributes into one ``save_for_backward``.

``scope`` finds every use of the receiver, ``flow`` what is bound where, ``fields`` judges each field, ``slices`` derives
a value again in backward, ``forward`` and ``backward`` write the two sides, ``family`` puts them together.
"""
