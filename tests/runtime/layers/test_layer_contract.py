"""What the contract asks of every layer: activations, norms, regularization, attention, core, views and time series."""

import importlib
from functools import partial

import pytest
import torch

from cachelint.runtime.harness import recorded
from cachelint.runtime.layers.activations.base_activation import BaseActivation
from cachelint.runtime.layers.activations.base_activation import reference as activation_reference
from cachelint.runtime.layers.activations.relu import relu_derivative
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.table import TOLERANCES, Mode, main, modes
from tests.runtime.layers import conformance

PACKAGES = (
    "activations",
    "normalization",
    "regularization",
    "attention",
    "core",
    "transpose",
    "reducesum",
    "functional",
    "timeseries",
)
OTHERS = ("core.MatMulNBits", "core.MixtureOfExperts", "core.MoEGate")
MODES = [mode for mode in modes(PACKAGES) if not mode.name.startswith(OTHERS)]

ATTENTION = ("attention_weights", "output", "logsumexp")
GROUPED = ("q_proj", "k_proj", "v_proj", "attn_output_final", *(f"sdpa.{field}" for field in ATTENTION))

# The paths of what a layer registers, by type. Those that are None in some mode are not registered there.
SAVED = {
    "activations.Sigmoid": ("last_output",),
    "activations.Softmax": ("output",),
    "regularization.Dropout": ("mask",),
    "regularization.FeatureDropout": ("mask",),
    "attention.ScaledDotProductAttention": ATTENTION,
    "attention.FusedSDPA": tuple(f"inner.{field}" for field in ATTENTION),
    "attention.AttentionHead": ("query", "key", "value", *(f"sdpa.{field}" for field in ATTENTION)),
    "attention.GroupedQueryAttention": GROUPED,
    "attention.GlobalAttention": tuple(f"gqa.{path}" for path in GROUPED),
    "attention.LocalAttention": tuple(f"gqa.{path}" for path in GROUPED),
    "attention.MultiHeadLatentAttention": (
        *("q_proj", "cached_ckv", "k_proj", "v_proj", "cached_attn_out"),
        *(f"sdpa.{field}" for field in ATTENTION),
    ),
    "core.Dense": ("pre_activation",),
    "core.Dense (linear)": (),
    "core.FFN": ("projections", "gated"),
    "core.FiLM": ("last_scale",),
    "core.TemporalConvEncoder": ("last_conv1_out", "last_conv2_out", "last_pooled"),
    "core.VariableSelection": ("last_hidden", "last_weights"),
}


def saved_paths(mode: Mode) -> tuple[str, ...]:
    paths = SAVED.get(mode.name, SAVED.get(mode.name.split(" (")[0], ()))
    return (*paths, "activation.last_output") if mode.name == "core.Dense" else paths


each_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


@each_mode
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_agrees_with_autograd_of_the_reference(mode: Mode, dtype: torch.dtype) -> None:
    for seed in (0, 1, 2):
        conformance.agrees_with_reference(mode, dtype, seed)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_agrees_with_autograd_of_the_reference_on_cuda(dtype: torch.dtype) -> None:
    for mode in MODES:
        conformance.agrees_with_reference(mode, dtype, 0, "cuda")


@each_mode
def test_passes_gradcheck_and_gradgradcheck(mode: Mode) -> None:
    conformance.passes_gradcheck(mode)


@each_mode
def test_second_step_is_that_of_a_fresh_instance(mode: Mode) -> None:
    conformance.keeps_nothing_over_steps(mode)


@each_mode
def test_parameter_gradients_accumulate_in_place(mode: Mode) -> None:
    conformance.accumulates(mode)


@each_mode
def test_survives_reset_with_poison(mode: Mode) -> None:
    conformance.survives_reset(mode)


@each_mode
def test_registers_what_it_keeps_and_no_more(mode: Mode) -> None:
    conformance.registers(mode, saved_paths(mode))


@each_mode
def test_registers_nothing_in_eval_mode(mode: Mode) -> None:
    conformance.registers_nothing_in_eval(mode, saved_paths(mode))


@pytest.mark.parametrize("mode", [mode for mode in MODES if not saved_paths(mode)], ids=lambda mode: mode.name)
def test_recomputes_from_live_inputs(mode: Mode) -> None:
    conformance.follows_live_inputs(mode)


@pytest.mark.parametrize(
    "mode",
    [mode for mode in MODES if saved_paths(mode) and not mode.name.startswith("regularization")],
    ids=lambda mode: mode.name,
)
def test_backward_without_a_training_forward_says_so(mode: Mode) -> None:
    node, inputs = mode.make(0)
    result = node.eval().forward(*inputs)
    with pytest.raises(RuntimeError, match="needs a forward in training mode"):
        node.backward(torch.ones_like(result), *inputs)


# ---- beside the pre-migration forms

BY_NAME = conformance.named(MODES)
RELU = Mode(
    "activations.BaseActivation",
    "activations",
    lambda seed, device="cpu", dtype=torch.float64: (
        BaseActivation(torch.relu, relu_derivative),
        (Init.seeded(seed, device, dtype).normal(2, 3),),
    ),
    activation_reference,
)
LEGACY = {
    "activations.base_activation": RELU,
    "activations.gelu": "activations.Gelu",
    "activations.leaky_relu": "activations.LeakyReLU",
    "activations.sigmoid": "activations.Sigmoid",
    "activations.softmax": "activations.Softmax",
    "activations.swiglu": "activations.SwiGLU",
    "normalization.layer_normalization": "normalization.LayerNormalization",
    "normalization.rms_norm": "normalization.RMSNorm",
    "normalization.simplified_layer_normalization": "normalization.SimplifiedLayerNormalization",
    "normalization.batch_normalization": "normalization.BatchNormalization",
    "regularization.dropout": "regularization.Dropout",
    "regularization.feature_dropout": "regularization.FeatureDropout",
    "attention.scaled_dot_product_attention": "attention.ScaledDotProductAttention",
    "attention.attention_head": "attention.AttentionHead",
    "attention.grouped_query_attention": "attention.GroupedQueryAttention",
    "attention.global_attention": "attention.GlobalAttention",
    "attention.local_attention": "attention.LocalAttention",
    "attention.multi_head_latent_attention": "attention.MultiHeadLatentAttention",
    "attention.fused_sdpa": "attention.FusedSDPA",
    "core.linear": "core.Linear",
    "core.bias": "core.Bias",
    "core.add": "core.Add",
    "core.mat_mul": "core.MatMul",
    "core.gemm": "core.Gemm",
    "core.dense": "core.Dense (linear)",
    "core.ffn": "core.FFN",
    "core.film": "core.FiLM",
    "core.polynomial_expansion": "core.PolynomialExpansion",
    "core.temporal_conv_encoder": "core.TemporalConvEncoder",
    "core.variable_selection": "core.VariableSelection",
    "core.rotary_embedding": "core.RotaryEmbedding",
    "transpose.transpose": "transpose.Transpose",
    "reducesum.reduce_sum": "reducesum.ReduceSum",
    "functional.gelu_backward": "functional.GELUBackward",
}


@pytest.mark.parametrize("module", LEGACY)
@pytest.mark.parametrize("seed", [0, 1])
def test_migrated_form_gives_what_the_legacy_form_gives(module: str, seed: int) -> None:
    legacy = importlib.import_module(f"fixtures.legacy.{module}")
    mode = LEGACY[module]
    conformance.agrees_with_legacy(BY_NAME[mode] if isinstance(mode, str) else mode, _in_float64(legacy.example), seed)


def _in_float64(example):
    return partial(example, device="cpu", dtype=torch.float64)


# ---- the table


def test_table_lists_every_layer_with_its_modes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "softmax", "rmsnorm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| activations.Softmax",
        "| activations.Softmax (first axis)",
        "| normalization.RMSNorm",
        "| normalization.RMSNorm (plain)",
    ]


def test_table_rejects_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonesuch"]) == 2
    assert "nonesuch" in capsys.readouterr().err


def test_table_goes_red_for_a_wrong_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    from cachelint.runtime.layers.activations import softmax

    monkeypatch.setattr(softmax, "softmax_backward", lambda grad, y, axis=-1: grad * y)
    assert main(["--seeds", "1", "activations.softmax"]) == 1


def test_every_expectation_names_a_layer() -> None:
    names = {mode.name for mode in MODES} | {mode.name.split(" (")[0] for mode in MODES}
    assert set(SAVED) <= names
    assert {name for mode in MODES if recorded(mode.make).saved for name in [mode.name.split(" (")[0]]} <= set(SAVED)
