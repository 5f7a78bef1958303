"""Reference layers in contract form: hand-written forward and backward, one module a layer, grouped in packages.

Every layer module also has ``example(seed, device, dtype)``, a small node with inputs for it, and ``reference(node,
*inputs)``, the same formula in plain torch operators, which autograd can differentiate.

What the layers have in common:

- Values that the live inputs give back cheaply are derived again in ``backward``; everything else is kept on the node
  and registered with ``save_for_backward``, in training mode only. A layer that registers something can therefore run
  its backward only after a forward in training mode.
- Half precision is computed in float32 inside elementwise formulas and row statistics, and rounded once at the end.
- ``backward`` adds parameter gradients with ``Parameter.accumulate`` and gives one gradient per input.
"""
