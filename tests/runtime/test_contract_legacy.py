"""What poison has to show of every field of the layers in their pre-migration form.

The fields and their classes are those of the audit that the project reproduces. A bare name is a cache that corrupts a
gradient; the marks stand for what else there is. Nothing here comes from the code that the test looks at.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cachelint.runtime.evidence import Specimen, main, specimens
from cachelint.runtime.proof import Effect, prove, written_fields

ROOT = Path(__file__).parents[2]
HARMLESS = {Effect.HOST, Effect.HANDLE, Effect.NOTHING}
MARKS = {
    "": {Effect.CORRUPTS},
    "unread": {Effect.NOTHING},
    "harmless": HARMLESS,
    "fallback": {Effect.WITHOUT_INPUTS},
    "shape": {Effect.SHAPE_ONLY},
    "state": {Effect.NEXT_STEP},
}

FIELDS = """
activations.BaseActivation: last_input
activations.Gelu: last_input
activations.LeakyReLU: last_input
activations.Sigmoid: last_output last_input:unread
activations.Softmax: output
activations.SwiGLU: last_input gate silu_x1
normalization.LayerNormalization: mean variance normed_input input_shape:harmless
normalization.RMSNorm: input_tensor rms
normalization.SimplifiedLayerNormalization: inv_std_dev normalized_input
normalization.BatchNormalization: normalized std scale_bc
regularization.Dropout: mask
regularization.FeatureDropout: mask
attention.ScaledDotProductAttention: q k v attention_weights
attention.AttentionHead:
attention.GroupedQueryAttention: attn_output_final
attention.GlobalAttention:
attention.LocalAttention:
attention.MultiHeadLatentAttention: cached_ckv cached_attn_out
attention.FusedSDPA: had_mask:harmless
core.FFN: input_tensor w1_output w3_output swiglu_output
core.FiLM: last_feature last_scale last_bias:unread
core.PolynomialExpansion: last_input
core.TemporalConvEncoder: last_conv1_out last_conv2_out last_pooled
core.VariableSelection: last_hidden last_weights last_input:unread
core.RotaryEmbedding: inner:harmless
transpose.Transpose: perm:harmless
reducesum.ReduceSum:
functional.GELUBackward:
core.Linear:
core.Bias:
core.Add:
core.MatMul:
core.Dense:
core.Gemm:
core.MatMulNBits: dequantized_weights cache_valid:harmless
core.MixtureOfExperts: cached_assignments cached_expert_outs cached_gate_weight cached_hidden_states
    cached_indices cached_weights
core.MoEGate: cached_gate_weight cached_hidden_states cached_indices cached_probs cached_num_experts:harmless
embeddings.RotaryPositionalEmbedding: cos_angles sin_angles
embeddings.TokenEmbedding: input_token_ids
hrm.HModule: fwd_combined_input hidden_state:state
hrm.LModule: fwd_combined_input
recurrent.SimpleRNN: last_input hidden_state
ssm.BCNorm: cached_input cached_norm
ssm.MambaBlock: last_input cached_x cached_x_conv cached_x_pre_conv cached_z cached_silu_z cached_dt
    cached_dt_raw cached_b cached_c cached_y cached_states cached_x_bc_dt
ssm.MIMOMambaBlock: last_input cached_x cached_x_conv cached_x_pre_conv cached_z cached_silu_z cached_dt
    cached_dt_raw cached_b cached_c cached_y cached_states cached_x_bc_dt cached_y_raw
ssm.ComplexSSMState: last_input cached_x cached_x_conv cached_x_pre_conv cached_z cached_silu_z cached_dt
    cached_dt_raw cached_b cached_c cached_y cached_states cached_x_bc_dt
transformer.Block: fwd_input fwd_norm1_out fwd_norm2_out fwd_post_attn fwd_residual1
fp8.FP8Linear: last_input
lora.LoraLinear: last_ax
loss.MSE: predictions:fallback targets:fallback
loss.BCELoss: predictions:fallback targets:fallback
loss.CorrLoss: predictions:fallback targets:fallback
loss.RoutingContrastive: scores:fallback
loss.CrossEntropyLoss: predictions:shape targets softmax_output
nas.DARTSLayer: last_input:fallback op_outputs weights
gdn.LoRAProjection:
"""


def table() -> dict[str, dict[str, str]]:
    """For each type, its fields with their marks."""
    found = {}
    for line in FIELDS.strip().replace("\n ", " ").splitlines():
        name, _, fields = line.partition(": ")
        pairs = (field.partition(":") for field in fields.split())
        found[name.removesuffix(":")] = {field: mark for field, _, mark in pairs}
    return found


TABLE = table()


@pytest.fixture(scope="module")
def legacy() -> dict[str, Specimen]:
    return {one.name: one for one in specimens([ROOT / "fixtures" / "legacy"])}


def test_every_type_has_a_fixture(legacy: dict[str, Specimen]) -> None:
    assert set(TABLE) <= set(legacy)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_poison_shows_what_the_audit_says(legacy: dict[str, Specimen], name: str) -> None:
    specimen = legacy[name]
    shown = {field: prove(specimen.examples, field).effect for field in TABLE[name]}
    wrong = {field: effect for field, effect in shown.items() if effect not in MARKS[TABLE[name][field]]}
    assert wrong == {}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_no_other_field_does_harm(legacy: dict[str, Specimen], name: str) -> None:
    specimen = legacy[name]
    written = {field for example in specimen.examples for field in written_fields(example)} - set(TABLE[name])
    shown = {field: prove(specimen.examples, field).effect for field in written}
    assert {field: effect for field, effect in shown.items() if effect not in HARMLESS} == {}


def test_the_audit_and_poison_agree_on_every_field_of_every_layer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    status = main(["fixtures/legacy", "cachelint/runtime/layers"])
    table = capsys.readouterr().out
    assert status == 0, [line for line in table.splitlines() if "**no**" in line]
    assert len(table.splitlines()) > 200
