"""Bytes that each reference layer keeps for backward, and its time, beside torch.nn's own layer of the same kind.

    python benchmarks/kept_bytes.py [--check] [--output benchmarks/kept_bytes.md] [--rounds 15] [NAME...]

Kept is what must stay alive between forward and backward beside parameters, each storage once: for ours what the layer
and its children register, and the inputs that its backward reads (told by changing each input's values before
backward); for torch what autograd's saved-tensor hooks see. A graph of ours pins every live input, also one that no
backward reads, as the caller of a torch layer would keep it. Where torch has no such layer, autograd runs one
put together of torch's own. Time is forward and backward together, the median of rounds in which both take turns, torch
with the gradients of inputs and parameters as ours. ``--check`` ends with 1 if a layer keeps more than torch's own.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cachelint.runtime import Node
from cachelint.runtime.harness import outcome_of, plain, recorded, run_backward, run_forward, upstream, worst
from cachelint.runtime.layers.activations.base_activation import BaseActivation
from cachelint.runtime.layers.activations.erf import Erf
from cachelint.runtime.layers.activations.gelu import Gelu
from cachelint.runtime.layers.activations.leaky_relu import LeakyReLU
from cachelint.runtime.layers.activations.relu import ReLU, relu_derivative
from cachelint.runtime.layers.activations.sigmoid import Sigmoid
from cachelint.runtime.layers.activations.softmax import Softmax
from cachelint.runtime.layers.activations.swiglu import SwiGLU
from cachelint.runtime.layers.activations.tanh import Tanh
from cachelint.runtime.layers.attention.grouped_query_attention import GroupedQueryAttention
from cachelint.runtime.layers.attention.scaled_dot_product_attention import ScaledDotProductAttention
from cachelint.runtime.layers.core.conv1d import Conv1D
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.core.ffn import FFN
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.core.mat_mul import MatMul
from cachelint.runtime.layers.embeddings.token_embedding import TokenEmbedding
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.loss.bce_loss import BCELoss
from cachelint.runtime.layers.loss.cross_entropy_loss import CrossEntropyLoss
from cachelint.runtime.layers.loss.mse import MSE
from cachelint.runtime.layers.normalization.batch_normalization import BatchNormalization
from cachelint.runtime.layers.normalization.layer_normalization import LayerNormalization
from cachelint.runtime.layers.normalization.rms_norm import RMSNorm
from cachelint.runtime.layers.recurrent.simple_rnn import SimpleRNN
from cachelint.runtime.layers.regularization.dropout import Dropout
from cachelint.runtime.layers.regularization.feature_dropout import FeatureDropout
from cachelint.runtime.layers.transformer.block import Block
from cachelint.runtime.proof import scrambled

BATCH, LENGTH, WIDTH, HEADS, HIDDEN, CLASSES = 4, 256, 512, 8, 2048, 8192
FLOAT = torch.float32
Inputs = tuple[Tensor, ...]
Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Pair:
    """One layer of ours and what stands for it in torch: its name, and a function of the inputs, with its weights."""

    name: str
    ours: Callable[[Init], tuple[Node, Inputs]]
    torch_name: str
    theirs: Function
    own: bool = True
    """Whether torch has a layer of this kind; else autograd runs the formula on torch's parts."""


@dataclass(frozen=True)
class Row:
    """What one pair keeps and how long it takes; seconds."""

    pair: Pair
    kept: int
    torch_kept: int
    seconds: float
    torch_seconds: float


def tokens(init: Init, *extra: int) -> Tensor:
    return init.normal(BATCH, LENGTH, *(extra or (WIDTH,)))


def pairs() -> Iterator[Pair]:
    """Every layer of which torch has one, and the others that a transformer is made of."""

    def elementwise(name: str, node: Callable[[], Node], torch_name: str, theirs: Function) -> Pair:
        return Pair(name, lambda init: (node(), (tokens(init),)), torch_name, theirs)

    yield elementwise(
        "BaseActivation (relu)", lambda: BaseActivation(torch.relu, relu_derivative), "nn.ReLU", nn.ReLU()
    )
    yield elementwise("ReLU", ReLU, "nn.ReLU", nn.ReLU())
    yield elementwise("LeakyReLU", LeakyReLU, "nn.LeakyReLU", nn.LeakyReLU())
    yield elementwise("Tanh", Tanh, "nn.Tanh", nn.Tanh())
    yield elementwise("Erf", Erf, "torch.erf", torch.erf)
    yield elementwise("Sigmoid", Sigmoid, "nn.Sigmoid", nn.Sigmoid())
    yield elementwise("Gelu (tanh)", Gelu, "nn.GELU(tanh)", nn.GELU(approximate="tanh"))
    yield elementwise("Gelu (exact)", lambda: Gelu("none"), "nn.GELU", nn.GELU())
    yield elementwise("Softmax", Softmax, "nn.Softmax", nn.Softmax(-1))
    yield elementwise("Dropout", lambda: Dropout(0.1), "nn.Dropout", nn.Dropout(0.1))
    yield elementwise("FeatureDropout", lambda: FeatureDropout(0.1), "nn.Dropout1d", nn.Dropout1d(0.1))
    yield Pair("SwiGLU", lambda init: (SwiGLU(), (tokens(init, 2 * WIDTH),)), "silu(a) * b", _swiglu, own=False)

    yield Pair(
        "LayerNormalization",
        lambda init: (LayerNormalization(WIDTH, init=init), (tokens(init),)),
        "nn.LayerNorm",
        nn.LayerNorm(WIDTH),
    )
    yield Pair("RMSNorm", lambda init: (RMSNorm(WIDTH, init=init), (tokens(init),)), "nn.RMSNorm", nn.RMSNorm(WIDTH))
    yield Pair(
        "BatchNormalization",
        lambda init: (
            BatchNormalization(),
            (init.normal(32, WIDTH, 32), *(init.uniform(WIDTH, low=0.5, high=1.5) for _ in range(4))),
        ),
        "F.batch_norm (eval)",
        lambda x, scale, bias, mean, variance: F.batch_norm(x, mean.detach(), variance.detach(), scale, bias),
    )

    yield Pair(
        "Linear",
        lambda init: (Linear(WIDTH, HIDDEN, init=init), (tokens(init),)),
        "nn.Linear",
        nn.Linear(WIDTH, HIDDEN, bias=False),
    )
    yield Pair(
        "Dense (gelu)",
        lambda init: (Dense(WIDTH, HIDDEN, activation=Gelu(), init=init), (tokens(init),)),
        "nn.Linear, nn.GELU(tanh)",
        nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(approximate="tanh")),
    )
    yield Pair(
        "MatMul",
        lambda init: (MatMul(), (tokens(init), init.normal(BATCH, WIDTH, LENGTH))),
        "torch.matmul",
        torch.matmul,
    )
    yield Pair(
        "Conv1D",
        lambda init: (Conv1D(64, 64, 3, padding=1, init=init), (init.normal(16, 64, 512),)),
        "nn.Conv1d",
        nn.Conv1d(64, 64, 3, padding=1),
    )
    yield Pair(
        "TokenEmbedding",
        lambda init: (
            TokenEmbedding(CLASSES, WIDTH, init=init),
            (torch.randint(CLASSES, (BATCH, LENGTH), generator=init.generator),),
        ),
        "nn.Embedding",
        nn.Embedding(CLASSES, WIDTH),
    )
    yield Pair(
        "SimpleRNN (one step)",
        lambda init: (SimpleRNN(WIDTH, WIDTH, init=init), (init.normal(64, WIDTH), init.normal(64, WIDTH))),
        "nn.RNNCell",
        nn.RNNCell(WIDTH, WIDTH),
    )

    yield Pair(
        "ScaledDotProductAttention (causal)",
        lambda init: (
            ScaledDotProductAttention(causal=True),
            tuple(init.normal(BATCH, HEADS, LENGTH, WIDTH // HEADS) for _ in range(3)),
        ),
        "F.scaled_dot_product_attention",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    )
    yield Pair(
        "GroupedQueryAttention (as many key heads)",
        lambda init: (
            GroupedQueryAttention(WIDTH, HEADS, HEADS, causal=False, rope_base=None, bias=True, init=init),
            (tokens(init),),
        ),
        "nn.MultiheadAttention",
        _self_attention(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)),
    )
    yield Pair(
        "FFN (swiglu)",
        lambda init: (FFN(WIDTH, HIDDEN, WIDTH, init=init), (tokens(init),)),
        "nn.Linear, silu(a) * b, nn.Linear",
        TorchFFN(),
        own=False,
    )
    yield Pair("transformer.Block", _block, "nn.RMSNorm, nn.Linear, attention", TorchBlock(), own=False)

    yield Pair("MSE", lambda init: (MSE(), (tokens(init), tokens(init))), "nn.MSELoss", nn.MSELoss())
    yield Pair(
        "BCELoss",
        lambda init: (BCELoss(), tuple(init.uniform(BATCH, LENGTH, WIDTH, low=0.05, high=0.95) for _ in range(2))),
        "nn.BCELoss",
        nn.BCELoss(),
    )
    yield Pair(
        "CrossEntropyLoss",
        lambda init: (
            CrossEntropyLoss(),
            (
                init.normal(BATCH * LENGTH, CLASSES),
                torch.randint(CLASSES, (BATCH * LENGTH,), generator=init.generator),
            ),
        ),
        "nn.CrossEntropyLoss",
        nn.CrossEntropyLoss(),
    )


def _swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def _self_attention(layer: nn.MultiheadAttention) -> Function:
    def attend(x: Tensor) -> Tensor:
        output: Tensor = layer(x, x, x, need_weights=False)[0]
        return output

    attend.parameters = layer.parameters  # type: ignore[attr-defined]
    return attend


def _block(init: Init) -> tuple[Node, Inputs]:
    attention = GroupedQueryAttention(WIDTH, HEADS, HEADS, rope_base=None, init=init)
    return Block(WIDTH, attention, FFN(WIDTH, HIDDEN, WIDTH, init=init), init=init), (tokens(init),)


class TorchFFN(nn.Module):
    """A SwiGLU feed-forward of nn.Linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down(_swiglu(self.up(x)))
        return down


class TorchBlock(nn.Module):
    """The same block of nn.RMSNorm, nn.Linear and torch's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(3))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ffn = TorchFFN()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1))
        merged = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        p = self.norms[1](x + self.out(merged))
        y: Tensor = p + self.ffn(self.norms[2](p))
        return y


# ---- measuring


def weights(function: Function) -> list[Tensor]:
    found: list[Tensor] = list(function.parameters()) if hasattr(function, "parameters") else []
    return found


def storages(tensors: Any) -> dict[int, int]:
    """The size of each storage, by its address; of a tensor that shows one element many times, that one."""
    return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t.numel()}


def kept_by_ours(pair: Pair) -> int:
    """Registered storages, and inputs that backward reads, parameters aside."""

    def example(seed: int) -> tuple[Node, Inputs]:
        return pair.ours(Init.seeded(seed, dtype=FLOAT))

    recording = recorded(example, training=True)
    read = [x for index, x in enumerate(recording.inputs) if _is_read(example, index)]
    found = storages((*recording.saved, *read))
    for parameter in recording.node.parameters():
        found.pop(parameter.value.untyped_storage().data_ptr(), None)
    return sum(found.values())


def _is_read(example: Callable[[int], tuple[Node, Inputs]], index: int) -> bool:
    """Whether the gradients are others when input ``index`` has other values in backward."""
    want = plain(example, training=True)
    node, inputs = example(0)
    result = run_forward(node.train(), inputs, 0)
    others = tuple(scrambled(x) if i == index else x for i, x in enumerate(inputs))
    try:
        grads = run_backward(node, result, upstream((result,), 0), others)
    except Exception:  # wrong values that the layer refuses are read
        return True
    return worst(outcome_of(node, (result,), grads, others), want, outputs=False) > 1e-6


def kept_by_torch(pair: Pair) -> int:
    """The storages that autograd saves, parameters aside."""
    inputs = _leaves(pair)
    saved: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = pair.theirs(*inputs)
    found = storages(saved)
    for weight in weights(pair.theirs):
        found.pop(weight.untyped_storage().data_ptr(), None)
    del output
    return sum(found.values())


def _leaves(pair: Pair) -> Inputs:
    _, inputs = pair.ours(Init.seeded(0, dtype=FLOAT))
    return tuple(x.clone().requires_grad_(x.is_floating_point()) for x in inputs)


def seconds(pair: Pair, rounds: int) -> tuple[float, float]:
    """The median of forward and backward, ours and torch's, taking turns."""
    node, inputs = pair.ours(Init.seeded(0, dtype=FLOAT))
    node.train()
    leaves = _leaves(pair)
    wanted = [*(leaf for leaf in leaves if leaf.requires_grad), *(w for w in weights(pair.theirs) if w.requires_grad)]
    with torch.no_grad():
        grad = torch.ones_like(node.forward(*inputs))

    def ours() -> None:
        with torch.no_grad():
            node.forward(*inputs)
            node.backward(grad, *inputs)

    def theirs() -> None:
        torch.autograd.grad(pair.theirs(*leaves), wanted, grad, allow_unused=True)

    times: dict[Callable[[], None], list[float]] = {ours: [], theirs: []}
    for _ in range(rounds):
        for run in times:
            start = perf_counter()
            run()
            times[run].append(perf_counter() - start)
    return statistics.median(times[ours]), statistics.median(times[theirs])


def measure(pair: Pair, rounds: int) -> Row:
    """Bytes and times of one pair."""
    return Row(pair, kept_by_ours(pair), kept_by_torch(pair), *seconds(pair, rounds))


# ---- the page


def page(rows: list[Row], rounds: int) -> str:
    """The table with what it shows and how it was made."""
    lines = [
        "# Bytes kept for backward, and time",
        "",
        f"Generated by `python benchmarks/kept_bytes.py --rounds {rounds}` on {date.today().isoformat()}: torch "
        f"{torch.__version__}, {torch.get_num_threads()} thread(s) on {platform.machine()}, float32, tokens "
        f"[{BATCH}, {LENGTH}, {WIDTH}].",
        "Kept is what must stay alive between forward and backward beside parameters: what the layer registers and the inputs",
        "that its backward reads, beside what autograd saves. Time is forward and backward together, ours over torch's; other",
        "work on the machine shows in it. In italics: torch has no such layer; one is put together of its parts.",
        "",
        "| Layer | Beside | Kept | torch keeps | Kept, ours : torch | Time, ours : torch |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        beside = row.pair.torch_name if row.pair.own else f"*{row.pair.torch_name}*"
        share = f"{row.kept / row.torch_kept:.2f}" if row.torch_kept else "–"
        time = f"{row.seconds / row.torch_seconds:.2f}"
        lines.append(f"| {row.pair.name} | {beside} | {row.kept:,} | {row.torch_kept:,} | {share} | {time} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Print or write the page; 1 with ``--check`` if a layer keeps more than torch's own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only layers whose name contains one of these")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    chosen = [p for p in pairs() if not options.names or any(n.lower() in p.name.lower() for n in options.names)]
    rows = [measure(pair, options.rounds) for pair in chosen]
    text = page(rows, options.rounds)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    more = [row.pair.name for row in rows if row.pair.own and row.kept > row.torch_kept]
    print(f"{len(rows)} layers, {len(more)} keep more than torch's own", *more, sep="\n  ", file=sys.stderr)
    return 1 if more and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
