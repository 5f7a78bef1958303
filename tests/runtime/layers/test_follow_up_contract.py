"""What the contract asks of every layer: losses, embeddings, state-space, recurrent, transformer, quantised layers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter, RecordingSaver
from cachelint.runtime.harness import plain, run_forward, two_steps, under_reset, upstream, worst
from cachelint.runtime.layers.activations.gelu import Gelu
from cachelint.runtime.layers.attention.grouped_query_attention import GroupedQueryAttention
from cachelint.runtime.layers.core.ffn import FFN
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.core.mat_mul_nbits import MatMulNBits
from cachelint.runtime.layers.core.mixture_of_experts import MixtureOfExperts
from cachelint.runtime.layers.core.moe_gate import MoEGate
from cachelint.runtime.layers.embeddings.rotary_positional_embedding import RotaryPositionalEmbedding
from cachelint.runtime.layers.embeddings.token_embedding import TokenEmbedding
from cachelint.runtime.layers.fp8.fp8_linear import FP8Linear
from cachelint.runtime.layers.hrm.h_module import HModule
from cachelint.runtime.layers.hrm.l_module import LModule
from cachelint.runtime.layers.lora.lora_linear import LoraLinear
from cachelint.runtime.layers.loss.bce_loss import BCELoss
from cachelint.runtime.layers.loss.corr_loss import CorrLoss
from cachelint.runtime.layers.loss.cross_entropy_loss import CrossEntropyLoss
from cachelint.runtime.layers.loss.mse import MSE
from cachelint.runtime.layers.loss.routing_contrastive import RoutingContrastive
from cachelint.runtime.layers.nas.darts_layer import DARTSLayer
from cachelint.runtime.layers.recurrent.simple_rnn import SimpleRNN
from cachelint.runtime.layers.ssm.bc_norm import BCNorm
from cachelint.runtime.layers.ssm.complex_ssm_state import ComplexSSMState
from cachelint.runtime.layers.ssm.mamba_block import MambaBlock
from cachelint.runtime.layers.ssm.mimo_mamba_block import MIMOMambaBlock
from cachelint.runtime.layers.table import TOLERANCES, Mode, modes
from cachelint.runtime.layers.transformer.block import Block
from cachelint.runtime.proof import own_tensors
from cachelint.runtime.saver import wire
from cachelint.runtime.walk import walk
from tests.runtime.layers import conformance

PACKAGES = ("embeddings", "fp8", "hrm", "lora", "loss", "nas", "recurrent", "ssm", "transformer")
OF_CORE = ("core.MatMulNBits", "core.MixtureOfExperts", "core.MoEGate")
MODES = [*modes(PACKAGES), *(mode for mode in modes(("core",)) if mode.name.startswith(OF_CORE))]
BY_NAME = conformance.named(MODES)

SCAN = ("projected", "x_conv", "x_bc_dt", "dt_raw", "states")

# What a layer itself keeps and registers, by type. A field that is None in some mode is not registered there.
SAVED = {
    "core.MixtureOfExperts": ("indices", "weights", "expert_outs"),
    "core.MoEGate": ("scores", "indices"),
    "hrm.HModule": ("combined_input",),
    "lora.LoraLinear": ("reduced",),
    "nas.DARTSLayer": ("weights", "op_outputs"),
    "recurrent.SimpleRNN": ("before", "after"),
    "ssm.ComplexSSMState": SCAN,
    "ssm.MIMOMambaBlock": SCAN,
    "ssm.MambaBlock": SCAN,
    "transformer.Block": ("norm1_out", "residual1", "post_attn", "norm2_out"),
}
REMEMBERS = ("hrm.HModule", "recurrent.SimpleRNN")
# Backward is by design not the derivative of forward: straight through the rounding, nothing for the padding row.
BY_DESIGN = ("fp8.FP8Linear", "fp8.FP8Linear (by row)", "embeddings.TokenEmbedding (padding)")

each_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


def saved_fields(mode: Mode) -> tuple[str, ...]:
    return SAVED.get(mode.name.split(" (")[0], ())


def held(node: Node) -> dict[int, str]:
    """The tensors that the nodes of the tree hold, those of parameters aside: where, by identity."""
    found = walk(node, enter=lambda value: not isinstance(value, Parameter))
    return {id(value): path for path, value in found if isinstance(value, Tensor)}


@each_mode
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_agrees_with_autograd_of_the_reference(mode: Mode, dtype: torch.dtype) -> None:
    for seed in (0, 1, 2):
        conformance.agrees_with_reference(mode, dtype, seed)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@each_mode
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_agrees_with_autograd_of_the_reference_on_cuda(mode: Mode, dtype: torch.dtype) -> None:
    conformance.agrees_with_reference(mode, dtype, 0, "cuda")


@pytest.mark.parametrize("mode", [m for m in MODES if m.name not in BY_DESIGN], ids=lambda mode: mode.name)
def test_passes_gradcheck_and_gradgradcheck(mode: Mode) -> None:
    conformance.passes_gradcheck(mode)


@each_mode
def test_gradients_keep_dtype_and_shape(mode: Mode) -> None:
    node, inputs = mode.make(0, "cpu", torch.bfloat16)
    result = node.forward(*inputs)
    assert result.dtype is torch.bfloat16
    for grad, x in zip(node.backward(*upstream((result,), 0), *inputs), inputs, strict=True):
        assert grad is None or (grad.dtype, grad.shape) == (x.dtype, x.shape)
        assert grad is not None or not x.is_floating_point()


@each_mode
def test_second_step_is_that_of_a_fresh_instance(mode: Mode) -> None:
    if mode.name.startswith(REMEMBERS) and "given" not in mode.name:
        steps = two_steps(mode.make, 0)
        assert worst(steps.second, steps.fresh) > 1e-3
    else:
        conformance.keeps_nothing_over_steps(mode)


@each_mode
def test_parameter_gradients_accumulate_in_place(mode: Mode) -> None:
    conformance.accumulates(mode)


@each_mode
def test_survives_reset_with_poison(mode: Mode) -> None:
    conformance.survives_reset(mode)


@each_mode
def test_registers_what_the_tree_keeps_and_no_more(mode: Mode) -> None:
    node, inputs = mode.make(0)
    before = held(node)
    recorder = RecordingSaver()
    wire(node, recorder)
    run_forward(node, inputs, 0)
    kept = {key: path for key, path in held(node).items() if key not in before or path not in before.values()}
    registered = {id(tensor) for tensor in recorder.tensors}
    assert set(kept) <= registered, kept
    assert registered <= set(held(node)), "something is registered that no field holds"
    own = {name for name, value in vars(node).items() if any(id(tensor) in kept for tensor in own_tensors(value))}
    assert own == {name for name in saved_fields(mode) if getattr(node, name) is not None}


@pytest.mark.parametrize(
    "mode", [m for m in MODES if saved_fields(m) and "given" not in m.name], ids=lambda mode: mode.name
)
def test_without_a_saver_a_reset_corrupts_it(mode: Mode) -> None:
    bare = under_reset(mode.make, 0, with_saver=False, steps=2)  # what outlives the step may shield the first one
    assert worst(bare.outcome, two_steps(mode.make, 0).second) > 1e-3


@each_mode
def test_registers_and_keeps_nothing_in_eval_mode(mode: Mode) -> None:
    node, inputs = mode.make(0)
    run_forward(node, inputs, 0)
    recorder = RecordingSaver()
    wire(node.eval(), recorder)
    run_forward(node, inputs, 0)
    assert recorder.tensors == []
    assert [name for name in saved_fields(mode) if getattr(node, name) not in (None, ())] == []
    if saved_fields(mode):
        with pytest.raises(RuntimeError, match="needs a forward in training mode"):
            node.backward(torch.ones_like(node.forward(*inputs)), *inputs)


@pytest.mark.parametrize(
    "mode", [m for m in MODES if not saved_fields(m) and not m.name.startswith("hrm")], ids=lambda mode: mode.name
)
def test_recomputes_from_live_inputs(mode: Mode) -> None:
    conformance.follows_live_inputs(mode)


# ---- beside the pre-migration forms


def block(width: int = 8) -> Block:
    return Block(width, GroupedQueryAttention(width, 4, 2), FFN(width, 6, width))


def h_module(old: Any) -> HModule:
    node = HModule(block())
    node.reset_state(old.hidden_state)
    return node


def simple_rnn(old: Any) -> SimpleRNN:
    node = SimpleRNN(3, 2)
    node.reset_state(old.hidden_state[1])
    return node


SMALL: dict[str, Any] = {"states": 2, "rank": 2, "taps": 2}

# The migrated layer for each pre-migration one.
LEGACY: dict[str, Callable[[Any], Node]] = {
    "core.mat_mul_nbits": lambda old: MatMulNBits(old.codes, old.scale, old.zero_point, out_features=4),
    "core.mixture_of_experts": lambda old: MixtureOfExperts(MoEGate(2), [Linear(2, 2) for _ in range(3)]),
    "core.moe_gate": lambda old: MoEGate(2),
    "embeddings.rotary_positional_embedding": lambda old: RotaryPositionalEmbedding(offset=2),
    "embeddings.token_embedding": lambda old: TokenEmbedding(7, 4),
    "fp8.fp8_linear": lambda old: FP8Linear(3, 4),
    "hrm.h_module": h_module,
    "hrm.l_module": lambda old: LModule(block()),
    "lora.lora_linear": lambda old: LoraLinear(Linear(3, 4), 3, 4, rank=2, alpha=3.0),
    "loss.bce_loss": lambda old: BCELoss(),
    "loss.corr_loss": lambda old: CorrLoss(),
    "loss.cross_entropy_loss": lambda old: CrossEntropyLoss(),
    "loss.mse": lambda old: MSE(),
    "loss.routing_contrastive": lambda old: RoutingContrastive(0.5),
    "nas.darts_layer": lambda old: DARTSLayer([Linear(3, 3), Gelu(), Linear(3, 3)]),
    "recurrent.simple_rnn": simple_rnn,
    "ssm.bc_norm": lambda old: BCNorm(4),
    "ssm.complex_ssm_state": lambda old: ComplexSSMState(2, inner=3, **(SMALL | {"states": 4})),
    "ssm.mamba_block": lambda old: MambaBlock(2, inner=3, **SMALL),
    "ssm.mimo_mamba_block": lambda old: MIMOMambaBlock(2, heads=2, inner=6, **SMALL),
    "transformer.block": lambda old: block(),
}


def legacy_example(module: str) -> Callable[[int], tuple[Node, tuple[Tensor, ...]]]:
    make: Callable[[int], tuple[Node, tuple[Tensor, ...]]] = importlib.import_module(
        f"fixtures.legacy.{module}"
    ).example
    return make


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("module", LEGACY)
def test_migrated_form_gives_what_the_legacy_form_gives(module: str, seed: int) -> None:
    def migrated(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        old, inputs = legacy_example(module)(seed)
        node = LEGACY[module](old)
        theirs, ours = dict(old.named_parameters()), dict(node.named_parameters())
        assert theirs.keys() == ours.keys()
        for name, parameter in ours.items():
            parameter.value = theirs[name].value.clone()
        return node, inputs

    got, want = plain(migrated, seed), plain(legacy_example(module), seed)
    assert worst(got, want) < 1e-12


@pytest.mark.parametrize("module", LEGACY)
def test_legacy_form_is_corrupted_by_a_reset(module: str) -> None:
    want = plain(legacy_example(module), 0)
    found = [under_reset(legacy_example(module), 0, inputs_in_arena=True, live=live).outcome for live in (True, False)]
    assert max(worst(outcome, want) for outcome in found) > 1e-3


def test_every_type_is_tried() -> None:
    assert {type(mode.make(0)[0]).__name__ for mode in MODES} == {
        type(legacy_example(module)(0)[0]).__name__ for module in LEGACY
    }
