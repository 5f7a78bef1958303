"""The remedy for functions around a ``ctx``: tensors move from attributes into one ``save_for_backward``.

``scope`` finds every use of the receiver, ``flow`` what is bound where, ``fields`` judges each field, ``slices`` derives
a value again in backward, ``containers`` and ``records`` take out the tensors in lists, tuples, dicts and dataclasses,
``forward`` and ``backward`` write the two sides, ``family`` puts them together.

A value that need not be a tensor is told apart when the program runs: ``isinstance`` decides what is saved, and anything
else stays on ctx. So no fix rests on a guess of what a value is.
"""
