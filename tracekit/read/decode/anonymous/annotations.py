"""What takes the place of an annotation: a label of torch, NCCL, Lightning, the probe or the program.

A label of a public form stays, but for the names in it. Names of collectives are public if torch or a backend has them.
A label that only begins like a public one keeps this beginning, as analyses look at it, and its rest has a pseudonym.
"""

from __future__ import annotations

import re

from tracekit.model.names.pseudonyms import Namer, module_name
from tracekit.model.spans import (
    CHECKPOINT_ACTIONS,
    CHECKPOINT_FUNCTIONS,
    EVALUATION_LABEL,
    OPTIMIZER_ACTIONS,
    ddp_hook_span,
    fsdp_span,
    module_span,
    parse_ddp_hook_span,
    parse_fsdp_span,
    parse_microbatch_label,
    parse_module_span,
    parse_rpc_span,
    rpc_call_span,
    rpc_service_span,
)

# Methods after the class of a strategy of Lightning, an optimizer or an iterator.
_METHODS = frozenset(
    {
        *("step", "zero_grad", "__next__", "training_step", "validation_step", "test_step", "predict_step", "backward"),
        *("optimizer_step", "batch_to_device", "pre_backward", "post_backward", "on_train_batch_start"),
    }
)

_WORDS = (
    *("all", "allgather", "allreduce", "alltoall", "any", "async", "barrier", "base", "batch", "broadcast"),
    *("check", "coalesced", "coalescing", "end", "for", "gather", "into", "list", "monitored", "nan", "oop"),
    *("recv", "recvAnySource", "reduce", "reducescatter", "scatter", "send", "sendrecv", "single", "source"),
    *("sparse", "start", "tensor", "tensors", "to", "uneven", "allv", "alltoallv", "v", "wait", "work"),
)
_WORD = f"(?:{'|'.join(sorted(_WORDS, key=len, reverse=True))})"
COLLECTIVE = rf"_?{_WORD}(?:_{_WORD})*_?"
"""Names of collectives: `allreduce`, `_allgather_base_`, `reduce_scatter_tensor_coalesced`, `recv_any_source_`."""
_NAME = re.compile(COLLECTIVE)


def _one_of(*names: str) -> str:
    """Return a pattern of any of the names; of two that begin alike it takes the longer one."""
    return f"(?:{'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})"


_OPTIMIZERS = _one_of(
    *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "RAdam"),
    *("RMSprop", "Rprop", "SGD", "SparseAdam", "ZeroRedundancyOptimizer", "PostLocalSGDOptimizer"),
    *("FusedAdam", "FusedLAMB", "FusedLion", "FusedSGD", "DeepSpeedCPUAdam", "DeepSpeedZeroOptimizer"),
    *("DeepSpeedZeroOptimizer_Stage3", "BF16_Optimizer", "FP16_Optimizer"),
)
_DATA_LOADERS = _one_of("_BaseDataLoaderIter", "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter")
_LIGHTNING_STRATEGIES = _one_of(
    *("DDPStrategy", "DeepSpeedStrategy", "FSDPStrategy", "ModelParallelStrategy", "SingleDeviceStrategy"),
    *("SingleDeviceXLAStrategy", "XLAFSDPStrategy", "XLAStrategy"),
)
_FSDP1_FUNCTIONS = _one_of(
    *("forward", "rate_limiter", "_pre_forward", "_post_forward", "_root_pre_forward", "_to_kwargs"),
    *("_pre_backward_hook", "_post_backward_hook", "_post_backward_hook_reshard_only", "_post_backward_prefetch"),
    *("_pre_backward_prefetch", "_pre_forward_prefetch", "_post_backward_final_callback"),
)
_FSDP2_ACTIONS = _one_of(
    *("root_pre_forward", "root_post_backward_callback", "inputs_to_device", "cast_forward_inputs"),
    *("cast_forward_outputs", "pre_forward", "post_forward", "pre_backward", "post_backward_accumulate"),
    *("post_backward_reshard", "post_backward_reduce", "post_backward_rs_wait", "post_backward_ar_wait"),
    *("all_gather", "all_gather_copy_in", "all_gather_copy_out", "all_reduce", "reduce_scatter"),
    *("forward_prefetch", "backward_prefetch"),
)
_PIPELINE_ACTIONS = _one_of(
    *("F", "B", "I", "W", "UNSHARD", "RESHARD", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE_GRAD")
)
_SPANS = _one_of(
    *("calibration", "wait", "coalesced", "data", "no_grad", "evaluation", "gc", "backward", "recompute", "checkpoint")
)
_LOGGING_FUNCTIONS = _one_of(
    *("Logger.handle", "SummaryWriter.add_scalar", "SummaryWriter.add_scalars", "SummaryWriter.add_histogram"),
    *("SummaryWriter.add_image", "SummaryWriter.add_images", "SummaryWriter.add_text", "SummaryWriter.add_figure"),
    *("SummaryWriter.add_graph", "SummaryWriter.flush", "Run.log", "mlflow.log_metric", "mlflow.log_metrics"),
    *("stdout", "stderr"),
)
_OVERHEADS = _one_of(  # of Kineto: what the profiler itself does
    *("Activity Buffer Request", "Buffer Flush", "Command Buffer Full", "Driver Compiler", "Instrumentation"),
    *("Lazy Function Loading", "Resource", "Resource Overhead", "Runtime Triggered Module Loading"),
    *("UVM Activity Init", "Unrecognized", "Unknown", "Overhead"),
)
# Of Kineto, as the next.
_ARROWS = _one_of("ac2g", "async_cpu_gpu", "async_cpu_to_gpu", "async_gpu", "fwdbwd", "fwd_bwd")
_SYNCHRONISATIONS = _one_of("Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")

# A checkpoint span has one word after the action.
_CHECKPOINT_CALL = rf"(?:{_one_of(*CHECKPOINT_ACTIONS)} (?=\S+\Z)(?:{_one_of(*CHECKPOINT_FUNCTIONS)}\Z)?)"
_ACTION = rf"\d+{_PIPELINE_ACTIONS}\d*"

# Public labels. What may be missing at their end is left out of a label that only begins like them.
_PUBLIC = re.compile(
    "|".join(
        (
            r"ProfilerStep(?:#\d+)?",
            rf"(?:nccl|rccl|xccl|gloo|mpi|ucc):(?:{COLLECTIVE}(?: \d+(?:->|<-)\d+)?)?",
            rf"c10d::(?:{COLLECTIVE})?|record_param_comms",
            rf"Optimizer\.(?:(?:step|zero_grad)#(?:{_OPTIMIZERS}(?=\.|\Z))?)?",
            rf"enumerate\(DataLoader\)#(?:{_DATA_LOADERS}(?=\.|\Z))?",
            rf"PP:(?:{_ACTION}|\({_ACTION}(?:;{_ACTION})*\)OVERLAP_F_B)?",
            r"(?:DistributedDataParallel|DataParallel)\.(?:forward)?",
            rf"FullyShardedDataParallel\.(?:{_FSDP1_FUNCTIONS}|_)?",
            rf"FSDP::{_FSDP2_ACTIONS}?",
            r"Torch-Compiled Region(?:: !?(?:\d+(?:/\d+){0,2}(?:_\d+)?)?)?",
            r"TorchDynamo(?: Cache Lookup)?|Pregraph bytecode|AOTDispatcher Runtime Wrapper Prologue",
            r"CompiledFunction(?:Backward)?|## Call CompiledFxGraph(?: (?:f[a-z2-7]{51}|None) ##)?",
            rf"\[pl\]\[profile\]\[Strategy\](?:{_LIGHTNING_STRATEGIES}(?=\.|\Z))?",
            r"\[pl\]\[profile\]run_training_batch\Z|train(?:ing)?_(?:step|iteration)\Z",
            # steps of SGLang and vLLM: numbers of requests and tokens
            r"step\[(?:[A-Z]+(?: \w+=\d+)*\])?",
            r"execute_(?:\d+_)?(?:context|new)_[\d()_]*(?:generation_|cached_)?[\d()]*",
            r"PyTorch Profiler(?: \(\d+\))?|Iteration Start: PyTorch Profiler|Record Window End|\[memory\]",
            rf"(?:{_OVERHEADS}|{_ARROWS}|{_SYNCHRONISATIONS})\Z",
            r"tracekit\.pp:(?:[FBIW]\.s\d+\.mb\d+(?:\.loss)?)?",
            r"tracekit\.forward:(?:m\d+)?",
            r"tracekit\.engine:(?:forward|backward)?",
            rf"tracekit\.optimizer:{_one_of(*OPTIMIZER_ACTIONS)}?",
            rf"tracekit\.logging:{_LOGGING_FUNCTIONS}?",
            rf"tracekit\.checkpoint:{_CHECKPOINT_CALL}?",
            rf"tracekit\.{_SPANS}?",
        )
    )
)
_FSDP2_LABEL = re.compile(rf"(FSDP::{_FSDP2_ACTIONS})(?: for (.*?))?(?: \((.*)\))?((?: \[pg=\d+\])?)")


def anonymous_annotation(name: str, namer: Namer) -> str:
    """Return a label without the names that the program has given."""
    if (fsdp := parse_fsdp_span(name)) is not None:
        return fsdp_span(fsdp.action, fsdp.phase, module_name(namer, fsdp.module))
    if (module := parse_module_span(name)) is not None:
        return module_span(module_name(namer, module))
    if (hook := parse_ddp_hook_span(name)) is not None:
        module = module_name(namer, hook.module)
        return ddp_hook_span(module, hook.bucket, hook.size_bytes, is_last=hook.is_last)
    if (rpc := parse_rpc_span(name)) is not None:
        function = namer.name("function", rpc.function)
        if rpc.callee is None:
            return rpc_service_span(rpc.caller, rpc.number, function)
        return rpc_call_span(rpc.caller, rpc.number, namer.name("worker", rpc.callee), function)
    if (label := _FSDP2_LABEL.fullmatch(name)) is not None:
        head, purpose, module, group = label.groups()
        purpose = "" if purpose is None else f" for {module_name(namer, purpose)}"
        return f"{head}{purpose}{'' if module is None else f' ({module_name(namer, module)})'}{group}"
    if parse_microbatch_label(name) is not None or EVALUATION_LABEL.fullmatch(name) is not None:
        return name
    public = _PUBLIC.match(name)
    return namer.name("annotation", name) if public is None else _with_rest(public[0], name[public.end() :], namer)


def _with_rest(public: str, rest: str, namer: Namer) -> str:
    """Return a label of which the beginning is public, with pseudonyms for the parts of its rest but for a method."""
    bare = rest.lstrip(" ")
    *parts, last = bare.split(".")
    method = last if last in _METHODS else namer.name("annotation", last)
    named = ".".join((*(namer.name("annotation", part) for part in parts), method))
    return f"{public}{' ' if bare != rest else ''}{named}"


def is_collective_name(name: str) -> bool:
    """Return whether torch or a backend has a collective of this name."""
    return _NAME.fullmatch(name) is not None
