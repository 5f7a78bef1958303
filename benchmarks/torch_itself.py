"""Outputs and gradients of PyTorch's own Functions that `cachelint fix` changes, as one digest.

    python benchmarks/torch_itself.py                        # the installed torch
    PYTHONPATH=FOLDER python benchmarks/torch_itself.py      # a copy in FOLDER, fixed

Prints the torch that was used, how many tensors were taken in, and a digest of their bytes: equal digests mean that every
output, gradient, per-sample gradient and tangent is bitwise the same. Needs expecttest, which torch.testing imports.
"""

from __future__ import annotations

import hashlib

import torch
from torch import nn
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads
from torch.testing._internal.autograd_function_db import Select, SelectGenVmap
from torch.utils.checkpoint import checkpoint


class Digest:
    """The bytes of tensors, in order."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.count = 0

    def put(self, *tensors: torch.Tensor | None) -> None:
        for tensor in tensors:
            if tensor is not None:
                self.hash.update(tensor.detach().contiguous().numpy().tobytes())
                self.count += 1


def per_sample(digest: Digest, module: nn.Module, x: torch.Tensor) -> None:
    """The gradients of each sample, by expanded weights."""
    y = call_for_per_sample_grads(module)(x)
    y.sum().backward()
    digest.put(y, *(parameter.grad_sample for parameter in module.parameters()))


def main() -> None:
    torch.manual_seed(0)
    digest = Digest()
    per_sample(digest, nn.Embedding(10, 4, padding_idx=2), torch.randint(0, 10, (5, 3)))
    per_sample(digest, nn.GroupNorm(2, 4), torch.randn(3, 4, 5, requires_grad=True))
    per_sample(digest, nn.InstanceNorm2d(4, affine=True), torch.randn(3, 4, 5, 5))
    per_sample(digest, nn.LayerNorm(6), torch.randn(3, 2, 6, requires_grad=True))
    per_sample(digest, nn.LayerNorm(6, bias=False), torch.randn(3, 2, 6))
    per_sample(digest, nn.Linear(6, 3), torch.randn(4, 6))
    per_sample(digest, nn.Conv1d(2, 3, 3), torch.randn(4, 2, 9))

    x = torch.randn(2, 7, 4, 4, requires_grad=True)
    y = nn.CrossMapLRN2d(3)(x)
    y.sum().backward()
    digest.put(y, x.grad)

    for function in (Select, SelectGenVmap):
        x = torch.randn(4, 5, requires_grad=True)
        y = function.apply(x, 2)
        (y * y).sum().backward()
        digest.put(y, x.grad, *torch.func.jvp(lambda v, f=function: f.apply(v, 1), (x.detach(),), (torch.ones(4, 5),)))

    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged, requires_grad=True)
    values = nested.values()
    values.sum().backward()
    digest.put(values, nested.grad.values())

    x = torch.randn(4, 5, requires_grad=True)
    y = checkpoint(lambda a: (nn.functional.dropout(a, 0.5) ** 2).sum(), x, use_reentrant=True)
    y.backward()
    digest.put(y, x.grad)
    print(torch.__file__, digest.count, digest.hash.hexdigest()[:16])


if __name__ == "__main__":
    main()
