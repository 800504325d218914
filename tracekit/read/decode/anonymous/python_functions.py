"""What takes the place of the name of a Python function in a recorded stack.

Functions of torch, of Python and of tracekit keep their names, without the folder in which they are installed. So do
built-in functions of Python and of torch.
"""

from __future__ import annotations

import importlib
import re
import sys
from contextlib import suppress
from functools import cache
from types import BuiltinFunctionType

from tracekit.model.names.modules import is_of_program, path_in_library
from tracekit.model.names.pseudonyms import Namer

_FUNCTION = re.compile(r"(.+?)\.py\((\d+)\): (.+)", re.DOTALL)
_LIBRARY_PATH = re.compile(r"[^()]+")
_MODULE = re.compile(r"nn\.Module: (.+?)((?:_\d+)?)", re.DOTALL)
_BUILT_IN = re.compile(r"<built-in (function|method) ([^\s>]+)(?: of (.+?) object(?: at \w+)?)?>", re.DOTALL)
# Of code that is in no file: `<string>(2): __init__`.
_GENERATED = re.compile(r"(<.*)\((\d+)\): (.+)", re.DOTALL)
# What Python and torch call the location of such code. What follows may be a path: `<eval_with_key>.12 from /home/...`.
_LOCATION = re.compile(r"<string>|<stdin>|<__array_function__ internals>|<eval_with_key>\.\d+(?! from)")
_LOCATION_BEGINS = re.compile(r"(<eval_with_key>\.\d+) from .*|(<ipython-input-\d+)-.*", re.DOTALL)
_FROZEN = re.compile(r"<frozen ([\w.]+)>")
_FROZEN_MODULES = sys.stdlib_module_names | {
    *("importlib._bootstrap", "importlib._bootstrap_external", "importlib.machinery", "importlib.util", "os.path"),
}
_GENERIC_NAMES = frozenset({"forward", "<module>", "<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})

# Modules of Python in C whose functions programs and torch call.
_PYTHON_MODULES = (
    *("builtins", "_abc", "_asyncio", "_bisect", "_codecs", "_collections", "_contextvars", "_csv", "_ctypes"),
    *("_datetime", "_functools", "_hashlib", "_heapq", "_imp", "_io", "_json", "_locale", "_operator", "_pickle"),
    *("_posixsubprocess", "_queue", "_random", "_signal", "_socket", "_sre", "_struct", "_thread", "_tracemalloc"),
    *("_warnings", "_weakref", "atexit", "binascii", "cmath", "errno", "faulthandler", "fcntl", "gc", "itertools"),
    *("marshal", "math", "posix", "select", "sys", "time", "zlib"),
)
# What programs call of `torch._C` and `torch._C._nn` (torch 2.13). Torch need not be installed where traces are read.
_NAMES_OF_TORCH = """
    _abort _add_docstr _any_output_is_alias_to_input_or_output _any_requires_grad _check_sparse_tensor_invariants
    _conv_depthwise2d _current_autograd_node _current_graph_task_execution_order _current_graph_task_id _cxx_flags
    _disabled_torch_dispatch_impl _disabled_torch_function_impl _dlpack_exchange_api _ensureCUDADeviceGuardSet
    _enter_dual_level _exit_dual_level _from_dlpack _fx_map_aggregate _fx_map_arg _get_all_dtypes _get_cpp_backtrace
    _get_cpu_capability _get_default_device _get_deterministic_algorithms _get_deterministic_algorithms_warn_only
    _get_deterministic_fill_uninitialized_memory _get_dispatch_mode _get_dispatch_stack_at
    _get_float32_matmul_precision _get_function_stack_at _get_graph_exec_group _get_thread_name _get_warnAlways
    _has_distributed _has_torch_function _has_torch_function_unary _has_torch_function_variadic _increment_version
    _infer_size _is_any_autocast_enabled _is_autocast_available _is_fwd_grad_enabled
    _is_grad_layout_enforcement_enabled _is_multithreading_enabled _is_torch_function_all_disabled
    _is_torch_function_enabled _is_torch_function_mode_enabled _is_view_replay_enabled _len_torch_dispatch_stack
    _len_torch_function_stack _log_api_usage_once _override_stale_capture_stream _pad_circular _parallel_info
    _peek_should_skip_torch_function _pop_torch_dispatch_stack _pop_torch_function_stack
    _push_on_torch_dispatch_stack _push_on_torch_function_stack _set_check_sparse_tensor_invariants
    _set_default_dtype _set_default_tensor_type _set_deterministic_algorithms
    _set_deterministic_fill_uninitialized_memory _set_dispatch_mode _set_float32_matmul_precision
    _set_fwd_grad_enabled _set_grad_enabled _set_grad_layout_enforcement_enabled _set_graph_exec_group
    _set_multithreading_enabled _set_override_stale_capture_stream _set_skip_next_torch_function _set_thread_name
    _set_view_replay_enabled _set_warnAlways _set_warn_on_accumulate_grad_stream_mismatch _show_config
    _skip_one_hop_torch_function _swap_tensor_impl _to_dlpack _to_dlpack_versioned _torchDeviceToDLDevice
    _unset_dispatch_mode _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_lanczos2d_aa
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _vmapmode_decrement_nesting
    _vmapmode_increment_nesting _warn _warn_deprecation _warn_on_accumulate_grad_stream_mismatch
    _will_engine_execute_node adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d
    autocast_decrement_nesting autocast_increment_nesting avg_pool2d avg_pool3d binary_cross_entropy
    clear_autocast_cache col2im conv_depthwise3d cross_entropy_loss elu elu_ flatten_dense_tensors
    fractional_max_pool2d fractional_max_pool3d gelu gelu_ get_autocast_cpu_dtype get_autocast_dtype
    get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype get_default_dtype get_num_interop_threads
    get_num_threads glu hardsigmoid hardsigmoid_ hardswish hardswish_ hardtanh hardtanh_ huber_loss im2col
    is_anomaly_check_nan_enabled is_anomaly_enabled is_autocast_cache_enabled is_autocast_cpu_enabled
    is_autocast_enabled is_autocast_ipu_enabled is_autocast_xla_enabled is_grad_enabled is_inference_mode_enabled
    l1_loss leaky_relu leaky_relu_ linear log_sigmoid max_pool2d_with_indices max_pool3d_with_indices max_unpool2d
    max_unpool3d mish mish_ mkldnn_linear mse_loss multi_margin_loss multilabel_margin_loss nll_loss nll_loss2d
    nll_loss_nd one_hot pad pad_sequence reflection_pad1d reflection_pad2d reflection_pad3d relu6 relu6_
    replication_pad1d replication_pad2d replication_pad3d rrelu_with_noise rrelu_with_noise_
    scaled_dot_product_attention set_anomaly_enabled set_autocast_cache_enabled set_autocast_cpu_dtype
    set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype set_autocast_ipu_dtype
    set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled set_flush_denormal
    set_num_interop_threads set_num_threads silu silu_ slow_conv3d slow_conv_dilated2d slow_conv_dilated3d
    slow_conv_transpose2d slow_conv_transpose3d smooth_l1_loss soft_margin_loss softplus softshrink thnn_conv2d
    unflatten_dense_tensors upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
    upsample_nearest2d upsample_nearest3d upsample_trilinear3d
"""
_OF_TORCH = frozenset(_NAMES_OF_TORCH.split())
# Types of Python and of torch whose objects have built-in methods, besides the types in `builtins`. A method of a
# `type` is one of torch's operators, such as `relu`, or one like `__new__`: those of pybind11 have other owners.
_OWNERS = frozenset(
    {
        *("coroutine", "dict_items", "dict_keys", "dict_values", "frame", "function", "generator", "mappingproxy"),
        *("method", "module", "NoneType", "FunctionMeta", "Parameter", "ScriptFunction", "ScriptMethod", "Tensor"),
        *("torch._C._EngineBase", "torch._C._TensorBase", "torch._C.TensorBase", "torch._C.Generator"),
        *("torch._C._profiler._RecordFunctionFast", "torch.Size", "torch.device", "torch.dtype"),
        *("Event", "Stream", "torch.Event", "torch.Stream", "torch._C._CudaEventBase", "torch._C._CudaStreamBase"),
        *("_abc._abc_data", "_asyncio.Future", "_asyncio.Task", "_contextvars.Context", "_contextvars.ContextVar"),
        *("_io.BufferedReader", "_io.BufferedWriter", "_io.BytesIO", "_io.FileIO", "_io.StringIO"),
        *("_io.TextIOWrapper", "_queue.SimpleQueue", "_random.Random", "_socket.socket", "_struct.Struct"),
        *("_thread.RLock", "_thread.lock", "collections.OrderedDict", "collections.defaultdict", "collections.deque"),
        *("datetime.datetime", "functools.partial", "hashlib.HASH", "re.Match", "re.Pattern", "weakref"),
    }
)


def anonymous_python_function(name: str, namer: Namer) -> str:
    """Return the name of a function without that of anything that is the program's."""
    if name.startswith("<"):
        return _without_file(name, namer)
    if (module := _MODULE.fullmatch(name)) is not None:
        return f"nn.Module: {namer.name('module', module[1])}{module[2]}"
    function = _FUNCTION.fullmatch(name)
    if function is None:
        return namer.name("function", name)
    path, line, code = function.groups()
    if not is_of_program(name):
        if _LIBRARY_PATH.fullmatch(path) is None:
            return namer.name("function", name)
        return f"{path_in_library(path)}.py({line}): {code}"
    return f"{namer.name('path', path)}.py({line}): {namer.name('function', code)}"


def _without_file(name: str, namer: Namer) -> str:
    """Return the name of a built-in function, or of one that was made while the program ran."""
    if (built_in := _BUILT_IN.fullmatch(name)) is not None:
        kind, function, owner = built_in.groups()
        is_public = is_public_builtin(function) if owner is None else is_public_owner(owner)
        return f"<built-in {kind} {function if is_public else namer.name('function', function)}>"
    if (generated := _GENERATED.fullmatch(name)) is None:
        return namer.name("function", name)
    location, line, code = generated.groups()
    if (frozen := _FROZEN.fullmatch(location)) is not None and frozen[1] in _FROZEN_MODULES:
        return name
    code = code if code in _GENERIC_NAMES else namer.name("function", code)
    return f"{_location(location, namer)}({line}): {code}"


def _location(location: str, namer: Namer) -> str:
    if _LOCATION.fullmatch(location) is not None:
        return location
    if (begins := _LOCATION_BEGINS.fullmatch(location)) is not None:
        return begins[1] or f"{begins[2]}>"
    return f"<{namer.name('path', location)}>"


def is_public_builtin(name: str) -> bool:
    """Return whether Python or torch has a built-in function of this name."""
    return name in _OF_TORCH or name in _of_python()


def is_public_owner(name: str) -> bool:
    """Return whether this is the name of a type of Python or torch."""
    return name in _OWNERS or name in _builtin_types()


@cache
def _builtin_types() -> frozenset[str]:
    names = vars(importlib.import_module("builtins")).items()
    return frozenset(name for name, value in names if isinstance(value, type))


@cache
def _of_python() -> frozenset[str]:
    names: set[str] = set()
    for module in _PYTHON_MODULES:
        with suppress(ImportError):  # some are of one operating system alone
            members = vars(importlib.import_module(module)).items()
            names.update(name for name, value in members if isinstance(value, BuiltinFunctionType))
    return frozenset(names)
