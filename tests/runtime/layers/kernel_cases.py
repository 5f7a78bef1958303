"""Each layer with kernels of its own, at odd sizes, by its kernels beside its plain path."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.harness import compare, plain, under_reset, worst
from cachelint.runtime.layers import kernels
from cachelint.runtime.layers.activations.gelu import Gelu
from cachelint.runtime.layers.activations.softmax import Softmax
from cachelint.runtime.layers.activations.swiglu import SwiGLU
from cachelint.runtime.layers.embeddings.rotary_positional_embedding import RotaryPositionalEmbedding
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.loss.cross_entropy_loss import CrossEntropyLoss
from cachelint.runtime.layers.normalization.layer_normalization import LayerNormalization
from cachelint.runtime.layers.normalization.rms_norm import RMSNorm

Made = tuple[Node, tuple[Tensor, ...]]
Make = Callable[[Init], Made]

TOLERANCES = {torch.float64: 1e-14, torch.float32: 5e-6, torch.bfloat16: 1.5e-2}
"""Both paths compute in float32 at least and round once, the interpreter to bfloat16 by cutting off. The float32 bound
covers rows of three that are nearly constant: a norm's gradient is a difference of nearly equal terms there."""


def noisy(node: Node, init: Init, *shape: int) -> Made:
    init.jitter(node)
    return node, (init.normal(*shape),)


def loss(node: CrossEntropyLoss, init: Init, *shape: int, ignored: int | None = None) -> Made:
    logits = init.normal(*shape, std=3.0)
    targets = torch.randint(shape[-1], shape[:-1], generator=init.generator)
    if ignored is not None:
        targets.view(-1)[::3] = ignored
    return node, (logits, targets.to(logits.device))


def strided(init: Init) -> Made:
    return LayerNormalization(6, init=init), (init.normal(5, 6, 3).transpose(1, 2),)


def masked(init: Init) -> Made:
    logits = init.normal(3, 9000)
    logits[:, :5000] = -torch.inf  # the whole first block of a program
    return CrossEntropyLoss("none"), (logits, torch.tensor([5000, 8999, 7000], device=logits.device))


def positions_by_batch(init: Init) -> Made:
    x = init.normal(2, 3, 5, 10)
    return RotaryPositionalEmbedding(6), (x, torch.tensor([[0, 1, 2, 3, 4], [9, 8, 0, 1, 7]], device=x.device))


CASES: dict[str, Make] = {
    "layer norm": lambda init: noisy(LayerNormalization(37, init=init), init, 3, 5, 37),
    "layer norm, many rows": lambda init: noisy(LayerNormalization(3, init=init), init, 259, 3),
    "layer norm, no bias": lambda init: noisy(LayerNormalization(1, 1e-2, bias=False, init=init), init, 3, 1),
    "layer norm, strided": strided,
    "rms norm": lambda init: noisy(RMSNorm(37, init=init), init, 3, 5, 37),
    "rms norm, many rows": lambda init: noisy(RMSNorm(5, 1e-3, init=init), init, 259, 5),
    "softmax": lambda init: (Softmax(), (init.normal(3, 5, 37, std=4.0),)),
    "softmax, last axis by number": lambda init: (Softmax(1), (init.normal(7, 1),)),
    "swiglu": lambda init: (SwiGLU(), (init.normal(3, 5, 2 * 83, std=2.0),)),
    "swiglu, one row": lambda init: (SwiGLU(), (init.normal(2),)),
    "gelu": lambda init: (Gelu(), (init.normal(3, 5, 83, std=2.0),)),
    "gelu, exact": lambda init: (Gelu("none"), (init.normal(1025, std=2.0),)),
    "cross entropy": lambda init: loss(CrossEntropyLoss(), init, 3, 5, 37),
    "cross entropy, wide": lambda init: loss(CrossEntropyLoss("sum"), init, 2, 5003),
    "cross entropy, masked": masked,
    "cross entropy, ignored": lambda init: loss(CrossEntropyLoss(ignore_index=-1), init, 7, 3, ignored=-1),
    "cross entropy, weighted and smoothed": lambda init: loss(
        CrossEntropyLoss("none", weight=init.uniform(37, low=0.2, high=2.0), label_smoothing=0.1), init, 3, 5, 37
    ),
    "rotary": lambda init: (RotaryPositionalEmbedding(offset=3), (init.normal(2, 3, 7, 10),)),
    "rotary, part": lambda init: (RotaryPositionalEmbedding(6, base=100.0), (init.normal(2, 7, 11),)),
    "rotary, interleaved": lambda init: (RotaryPositionalEmbedding(interleaved=True), (init.normal(2, 3, 7, 14),)),
    "rotary, positions by batch": positions_by_batch,
}


def agrees(make: Make, dtype: torch.dtype, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and gradients of the kernels are those of the plain path, and the kernels really ran, both ways."""

    def example(seed: int) -> Made:
        return make(Init.seeded(seed, device, dtype))

    with kernels.use("off"):
        want = plain(example)
    answers: list[bool] = []
    ask = kernels.enabled
    monkeypatch.setattr(kernels, "enabled", lambda *args, **named: answers.append(ask(*args, **named)) or answers[-1])
    with kernels.use("on"):
        got = plain(example)
    assert answers == [True, True]
    differences = compare(got, want)
    assert differences[0].error <= TOLERANCES[dtype], differences


def survives_reset(make: Make, device: str) -> None:
    """Under the arena the kernels give what they give outside it, and what they save is pinned."""

    def example(seed: int) -> Made:
        return make(Init.seeded(seed, device, torch.float32))

    with kernels.use("on"):
        trial = under_reset(example, inputs_in_arena=True, steps=2, on_stale="raise")
        want = plain(lambda seed: (example(0)[0], example(1)[1]), 1)
    assert trial.error is None
    assert worst(trial.outcome, want) == 0
    assert trial.pins_left == 0
