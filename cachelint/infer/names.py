"""What names suggest. Used only where no evidence speaks, and a verdict that rests on it says so."""

from __future__ import annotations

import re
from typing import Final

from cachelint.infer.values import DEVICE, HOST

_HOST: Final = re.compile(
    r"""(?x) ^(?:is|has|use|need|needs|do|should|can|with|no|num|n|return|returns|enable|disable|apply|inplace|keep|skip|
        allow|max|min|input_is|output|save|fuse|fp8|async|head_first|preserve|requires|ignore|casting|in_place)_.*
    | .*(?:_size|_sizes|_dim|_dims|_axis|_axes|_shape|_shapes|_dtype|_device|_group|_rank|_len|_length|_count|_mode|_type|
        _name|_fn|_func|_function|_op|_config|_cfg|_flag|_factor|_ratio|_rate|_prob|_p|_eps|_epsilon|_idx|_num|_heads|
        _stride|_padding|_dilation|_groups|_training|_layout|_format|_args|_kwargs|_ctx|_context|_module|_handle|_stream|
        _event|_manager|_tracker|_kernel|_impl|_backend|_reduction|_quantizer|_recipe|_meta|_enabled|_only|_first|
        _parallel|_comm|_scale|_threshold|_seqlen|_block|_blocks|_chunk|_chunks|_steps|_level|_window)$
    | (?:comm|dim|dims|axis|axes|shape|size|sizes|eps|epsilon|alpha|beta|gamma_init|group|groups|rank|world|world_size|training|
        train|p|mode|dtype|device|stride|padding|dilation|kernel_size|causal|is_causal|scale|softmax_scale|sm_scale|
        reduction|name|fn|func|function|op|module|config|cfg|flag|n|k|chunk_size|block_size|num_heads|nheads|heads|
        momentum|lambd|lambda_|temperature|factor|ratio|threshold|slope|negative_slope|inplace|deterministic|activation|
        output_size|input_size|in_shape|out_shape|window_size|dropout_p|dropout|ctx|self|mesh|handle|stream|backend|
        reverse|layout|quantizer|recipe|pg|process_group|run_function|layer|training|seed|offset|ignore_index|softcap|
        bits|levels|step|index_type|compute_type|BT|BS|BK|BV|T|N|H|D|use_.*|tp_group|async_op|sequence_parallel)$"""
)
_DEVICE: Final = re.compile(
    r"""(?x) ^(?:x|y|z|q|k|v|qkv|kv|w|weight|weights|bias|input|inputs|input_|inp|tensor|tensors|hidden|hidden_states|
        hidden_state|output|outputs|out|grad|grad_output|logits|target|targets|labels|label|mask|masks|index|indices|idx|
        cu_seqlens.*|tokens|probs|features|feature|gate|up|cos|sin|g|h|h0|initial_state|A|B|C|D|delta|u|residual|query|
        key|value|data|points|coords|batch|a|b|emb|embedding|embeddings|gamma|rstd|mean|var|inv_std|state|lse|
        .*(?:_weight|_bias|_tensor|_mask|_states|_probs|_logits|_grad|_input|_output|_indices|_ids|_scores|_embeds|
        _slopes|_seqlens))$"""
)


def suggests(name: str) -> int:
    """HOST, DEVICE or 0, by the last part of ``name`` alone."""
    last = name.rpartition(".")[2]
    if _HOST.match(last):
        return HOST
    if _DEVICE.match(last):
        return DEVICE
    if last.isupper() and len(last) > 1:
        return HOST
    return 0
